/*
 * The interface of FTI, the Fault Tolerance Interface, over libcairn: a program
 * written for FTI is compiled with this header and fti.c, and takes Cairn's
 * checkpoints. docs/coming-from.md says what differs.
 *
 *     mpicc sim.c $(pkg-config --cflags --libs cairn-fti) -o sim
 */
#ifndef CAIRN_FTI_H
#define CAIRN_FTI_H

#include <errno.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef FTIX
#error "the extensions of FTI (FTIX_...) are not available with Cairn"
#endif

#define FTI_BUFS 256
#define FTI_WORD 16

/* What functions return. */
#define FTI_DONE 1  /* a checkpoint was taken */
#define FTI_SCES 0  /* success */
#define FTI_NSCS -1 /* failure; the reason is on stderr */
#define FTI_NREC -2 /* nothing could be recovered */
#define FTI_HEAD 2  /* no process is a head with Cairn */

/* States of requests to stage files, which Cairn does not do. */
#define FTI_SI_FAIL 0x4
#define FTI_SI_SCES 0x3
#define FTI_SI_ACTV 0x2
#define FTI_SI_PEND 0x1
#define FTI_SI_NINI 0x0

#define FTI_EROR 4
#define FTI_WARN 3
#define FTI_IDCP 5
#define FTI_INFO 2
#define FTI_DBUG 1

#define FTI_BASE 990
#define FTI_CKTW 991
#define FTI_XORW 992
#define FTI_RSEW 993
#define FTI_PFSW 994
#define FTI_ENDW 995
#define FTI_REJW 996

#define FTI_IO_POSIX 1001
#define FTI_IO_MPI 1002
#define FTI_IO_FTIFF 1003
#define FTI_IO_SIONLIB 1004
#define FTI_IO_HDF5 1005
#define FTI_IO_IME 1006

#define FTI_DEFAULT_MAX_VAR_ID (100 * 1024)
#define TYPES_MAX 64
#define TYPES_DIMENSION_MAX 32
#define TYPES_FIELDS_MAX 128

#define talloc(type, num) ((type *)malloc(sizeof(type) * (size_t)(num)))

typedef int fti_id_t;
#define FTIT_type fti_id_t
typedef int64_t FTIT_hsize_t;

typedef enum {
	FTI_L1 = 1,
	FTI_L2,
	FTI_L3,
	FTI_L4,
	FTI_L1_DCP,
	FTI_L2_DCP,
	FTI_L3_DCP,
	FTI_L4_DCP,
	FTI_L4_H5_SINGLE,
	FTI_MIN_LEVEL_ID = FTI_L1,
	FTI_MAX_LEVEL_ID = FTI_L4_H5_SINGLE
} FTIT_level;

typedef enum {
	FTI_ATTRIBUTE_NAME = 1 << 0,
	FTI_ATTRIBUTE_DIM = 1 << 1
} FTIT_attributeFlag;

typedef struct FTIT_dimension {
	int ndims;
	int64_t count[32];
} FTIT_dimension;

typedef struct FTIT_attribute {
	FTIT_dimension dim;
	char name[FTI_BUFS];
} FTIT_attribute;

typedef struct FTIT_H5Group {
	int id;
	char name[FTI_BUFS];
	char fullName[FTI_BUFS];
	int childrenNo;
	int childrenID[FTI_BUFS];
} FTIT_H5Group;

/* What FTI_GetConfig returns. Members that mean nothing here are 0. */
typedef struct FTIT_metadata {
	int level, ckptId, ckptIdL4;
	int64_t maxFs, fs, pfs;
	char ckptFile[FTI_BUFS];
} FTIT_metadata;

typedef struct FTIT_configuration {
	bool stagingEnabled, dcpFtiff, dcpPosix, keepL4Ckpt, keepHeadsAlive;
	int dcpMode, dcpBlockSize;
	char cfgFile[FTI_BUFS];
	int saveLastCkpt, verbosity, blockSize, transferSize, maxVarId;
	int ckptTag, stageTag, finalTag, generalTag;
	int test, l3WordSize, ioMode;
	bool h5SingleFileEnable, h5SingleFileKeep, h5SingleFileIsInline;
	char h5SingleFileDir[FTI_BUFS], h5SingleFilePrefix[FTI_BUFS];
	char stageDir[FTI_BUFS], stashDir[FTI_BUFS], stashDirGlobal[FTI_BUFS];
	char localDir[FTI_BUFS], glbalDir[FTI_BUFS], StashDirGlobalBase[FTI_BUFS], metadDir[FTI_BUFS];
	char lTmpDir[FTI_BUFS], gTmpDir[FTI_BUFS], mTmpDir[FTI_BUFS];
	int64_t cHostBufSize;
	char suffix[4];
} FTIT_configuration;

typedef struct FTIT_topology {
	int nbProc, nbNodes, myRank, splitRank, splitSize, nodeSize, nbHeads, nbApprocs, groupSize;
	int sectorID, nodeID, groupID, amIaHead;
	bool masterLocal, masterGlobal;
	int headRank, headRankNode, nodeRank, groupRank, right, left;
	int body[FTI_BUFS];
} FTIT_topology;

typedef struct FTIT_checkpoint {
	char dir[FTI_BUFS], L4Replica[FTI_BUFS], dcpDir[FTI_BUFS], archDir[FTI_BUFS], archMeta[FTI_BUFS], metaDir[FTI_BUFS], dcpName[FTI_BUFS];
	bool isDcp, recoIsDcp, hasDcp, hasCkpt;
	int isInline, ckptIntv, ckptCnt, ckptDcpIntv, ckptDcpCnt;
	bool localReplica;
} FTIT_checkpoint;

typedef struct FTIT_injection {
	int rank, index, position, number, frequency, counter;
	double timer;
} FTIT_injection;

typedef struct FTIT_execution {
	char id[FTI_BUFS];
	int reco, ckptLvel, ckptIntv, lastCkptLvel, wasLastOffline;
	double iterTime, lastIterTime, meanIterTime, globMeanIter, totalIterTime;
	unsigned int syncIter;
	int syncIterMax;
	unsigned int minuteCnt;
	bool hasCkpt, h5SingleFile;
	unsigned int ckptCnt, ckptIcnt, ckptId, ckptNext, ckptLast;
	int64_t ckptSize;
	unsigned int nbVar, nbVarStored;
	int nbGroup, initSCES;
	FTIT_metadata ckptMeta;
	MPI_Comm globalComm, groupComm, nodeComm;
	int fastForward;
} FTIT_execution;

typedef struct FTIT_allConfiguration {
	FTIT_configuration configuration;
	FTIT_execution execution;
	FTIT_topology topology;
	FTIT_checkpoint checkpoint[5];
	FTIT_injection injection;
} FTIT_allConfiguration;

#ifdef __cplusplus
extern "C" {
#endif

/* The processes that compute: with Cairn all of those given to FTI_Init. */
extern MPI_Comm FTI_COMM_WORLD;

extern fti_id_t FTI_CHAR, FTI_SHRT, FTI_INTG, FTI_LONG, FTI_UCHR, FTI_USHT, FTI_UINT, FTI_ULNG, FTI_SFLT, FTI_DBLE, FTI_LDBE;

/* Collective: FTI_Init, Snapshot, Checkpoint, FinalizeICP, Finalize. */
int FTI_Init(const char *configFile, MPI_Comm globalComm);
int FTI_Finalize(void);
int FTI_Status(void); /* not 0: there is a checkpoint to recover */
FTIT_allConfiguration FTI_GetConfig(const char *configFile, MPI_Comm globalComm);

/* Variables and their types. */
int FTI_Protect(int id, void *ptr, int64_t count, fti_id_t tid);
int FTI_setIDFromString(const char *name);
int FTI_getIDFromString(const char *name);
int FTI_SetAttribute(int id, FTIT_attribute attribute, FTIT_attributeFlag flag);
int FTI_DefineDataset(int id, int rank, int64_t *dimLength, const char *name, FTIT_H5Group *h5group);
int FTI_InitGroup(FTIT_H5Group *h5group, const char *name, FTIT_H5Group *parent);
int FTI_RenameGroup(FTIT_H5Group *h5group, const char *name);
int FTI_InitType(fti_id_t *type, int size);
fti_id_t FTI_InitCompositeType(const char *name, size_t size, FTIT_H5Group *h5g);
int FTI_AddScalarField(fti_id_t id, const char *name, fti_id_t fid, int64_t offset);
int FTI_AddVectorField(fti_id_t id, const char *name, fti_id_t tid, int64_t offset, int ndims, int64_t *dim_sizes);
int64_t FTI_GetStoredSize(int id);
void *FTI_Realloc(int id, void *ptr);

/* Checkpoints. */
int FTI_Checkpoint(int id, int level);
int FTI_Snapshot(void);
int FTI_InitICP(int id, int level, bool activate);
int FTI_AddVarICP(int varID);
int FTI_FinalizeICP(void);
int FTI_Recover(void);
int FTI_RecoverVarInit(void);
int FTI_RecoverVar(int id);
int FTI_RecoverVarFinalize(void);
int FTI_BitFlip(int datasetID);

/* Not available with Cairn: they fail, and say so on stderr. */
int FTI_GetStageDir(char *stageDir, int maxLen);
int FTI_GetStageStatus(int ID);
int FTI_SendFile(const char *lpath, const char *rpath);
int FTI_DefineGlobalDataset(int id, int rank, FTIT_hsize_t *dimLength, const char *name, FTIT_H5Group *h5group, fti_id_t tid);
int FTI_AddSubset(int id, int rank, FTIT_hsize_t *offset, FTIT_hsize_t *count, int did);
int FTI_RecoverDatasetDimension(int did);
FTIT_hsize_t *FTI_GetDatasetSpan(int did, int rank);
int FTI_GetDatasetRank(int did);
int FTI_UpdateGlobalDataset(int id, int rank, FTIT_hsize_t *dimLength);
int FTI_UpdateSubset(int id, int rank, FTIT_hsize_t *offset, FTIT_hsize_t *count, int did);

#ifdef __cplusplus
}
#endif
#endif
