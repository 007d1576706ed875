# Writes a small file with most structures of the HDF5 library:
#   seed.py default.h5 default; seed.py latest.h5 latest
import sys, h5py, numpy as np
f = h5py.File(sys.argv[1], 'w', libver='latest' if sys.argv[2] == 'latest' else None)
f.create_dataset('a', data=np.arange(40, dtype='i2').reshape(8, 5), chunks=(3, 2))
f.create_dataset('b', data=np.arange(40, dtype='i2').reshape(8, 5), chunks=(3, 2), maxshape=(None, 5), compression=1)
f.create_dataset('c', data=np.arange(40, dtype='i2').reshape(8, 5), chunks=(3, 2), maxshape=(None, None))
f.create_dataset('e', data=np.arange(40, dtype='i2').reshape(8, 5), chunks=(8, 5), compression=1)
f['d'] = np.zeros(2, 'c8')
f['d'].attrs['x'] = 'text'
for i in range(12): f['g/%d' % i] = i
for i in range(10): f['g'].attrs['%d' % i] = i
f.close()
