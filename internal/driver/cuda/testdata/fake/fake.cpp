// A libcuda and a libnvrtc in one, for tests on machines without a GPU. Device
// memory is host memory; streams are threads; NVRTC is g++ with mock.h before
// the source. It is stricter than the real one: it checks contexts and
// addresses, never waits in cuMemFree, and spoils memory that was freed. If
// FAKE_CUDA_LAZY is set, a stream runs a command only when somebody waits for
// it: what nobody waits for happens as late as it may.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

typedef int R;
typedef uint64_t ptr;
#define API extern "C" __attribute__((visibility("default")))

static const int devices = 2;
static const size_t memory = 512 << 20;
static std::mutex mu; // of all tables
struct alloc { size_t n; int dev; bool managed, other, pool; };
static std::map<ptr, alloc> allocs;
static const bool lazy = getenv("FAKE_CUDA_LAZY") != nullptr;
static std::map<ptr, size_t> pins;
static size_t used[devices];
static int lost[devices], refs[devices];
static thread_local int cur; // 1 + device
static int live_streams, live_events, live_modules;

struct stream {
	int dev;
	std::mutex m;
	std::condition_variable c;
	std::deque<std::function<void()>> todo;
	uint64_t given = 0, done = 0, wanted = 0;
	bool end = false, dead = false;
	std::thread t;
	stream(int d) : dev(d), t([this] { run(); }) {}
	void run() {
		std::unique_lock<std::mutex> l(m);
		for (;;) {
			c.wait(l, [&] { return end || (!todo.empty() && (!lazy || done < wanted)); });
			if (todo.empty()) return;
			auto f = std::move(todo.front());
			todo.pop_front();
			l.unlock();
			f();
			l.lock();
			done++;
			c.notify_all();
		}
	}
	uint64_t push(std::function<void()> f) {
		std::lock_guard<std::mutex> l(m);
		todo.push_back(std::move(f));
		c.notify_all();
		return ++given;
	}
	void wait(uint64_t n) {
		std::unique_lock<std::mutex> l(m);
		want(n);
		c.wait(l, [&] { return done >= n; });
	}
	bool passed(uint64_t n) {
		std::lock_guard<std::mutex> l(m);
		want(n);
		return done >= n;
	}
	void want(uint64_t n) {
		if (wanted < n) wanted = n;
		c.notify_all();
	}
	~stream() {
		{
			std::lock_guard<std::mutex> l(m);
			end = true;
			c.notify_all();
		}
		t.join();
	}
};
typedef std::shared_ptr<stream> streamp;
struct event {
	std::mutex m;
	streamp s;
	uint64_t at = 0;
};

// A capture of the program: calls that may wait are refused to threads that are
// not relaxed, and end it.
static std::atomic<int> capturing; // 1: yes, 2: ended by such a call
static thread_local int capture_mode;
API R cuThreadExchangeStreamCaptureMode(int *m) { std::swap(*m, capture_mode); return 0; }
API R cuStreamBeginCapture_v2(void *, int) { capturing = 1; return 0; }
API R cuStreamEndCapture(void *, void **) { return capturing.exchange(0) == 2 ? 901 : 0; }
#define UNSAFE \
	if (capturing && capture_mode != 2) { capturing = 2; return 906; }

// The context must be current, and alive.
#define CTX \
	if (cur == 0) return 201; \
	if (refs[cur - 1] == 0) return 709; \
	if (lost[cur - 1]) return lost[cur - 1];
#define STREAM(h) \
	CTX streamp s = *(streamp *)(h); \
	if (s->dev != cur - 1 || s->dead) return 400;

// Sets what every call for a device returns from now on.
API void fake_lose(int dev, int code) { lost[dev] = code; }
API int fake_left(int what) {
	std::lock_guard<std::mutex> l(mu);
	switch (what) {
	case 0: return (int)allocs.size();
	case 1: return live_streams;
	case 2: return live_events;
	case 3: return live_modules;
	case 4: return (int)pins.size();
	}
	return refs[0] + refs[1];
}

API R cuInit(unsigned) { return 0; }
API R cuDriverGetVersion(int *v) { *v = 12040; return 0; }
API R cuGetErrorName(R r, const char **s) {
	*s = r == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : r == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OTHER";
	return 0;
}
API R cuGetErrorString(R r, const char **s) { *s = r == 2 ? "out of memory" : "some error"; return 0; }
API R cuDeviceGetCount(int *n) { *n = devices; return 0; }
API R cuDeviceGet(int *d, int i) { *d = i; return 0; }
API R cuDeviceGetName(char *s, int n, int) { snprintf(s, n, "Fake GPU"); return 0; }
API R cuDeviceTotalMem_v2(size_t *n, int) { *n = memory; return 0; }
API R cuDeviceGetAttribute(int *v, int a, int dev) {
	switch (a) {
	case 1: case 2: case 3: *v = 1024; return 0;
	case 4: *v = 64; return 0;
	case 5: *v = 0x7fffffff; return 0;
	case 6: case 7: *v = 65535; return 0;
	case 8: *v = 48 << 10; return 0;
	case 16: *v = 4; return 0;
	case 75: *v = 9; return 0;
	case 88: *v = getenv("FAKE_CUDA_PAGEABLE") != nullptr; return 0;
	case 89: *v = getenv("FAKE_CUDA_EXCLUSIVE") == nullptr; return 0;
	case 76: *v = dev == 0 ? 0 : 9; return 0; // NVRTC does not know the second
	case 97: *v = 200 << 10; return 0;
	}
	return 1;
}
API R cuDevicePrimaryCtxRetain(void **c, int d) { refs[d]++; *c = (void *)(intptr_t)(d + 1); return lost[d]; }
API R cuDevicePrimaryCtxGetState(int d, unsigned *flags, int *active) { *flags = 0, *active = refs[d] > 0; return 0; }
API R cuDevicePrimaryCtxRelease_v2(int d) { if (refs[d] == 0) return 201; refs[d]--; return 0; }
API R cuDevicePrimaryCtxRelease(int d) { return cuDevicePrimaryCtxRelease_v2(d); }
static thread_local std::vector<int> stack;
API R cuCtxPushCurrent_v2(void *c) { stack.push_back(cur); cur = (int)(intptr_t)c; return 0; }
API R cuCtxPopCurrent_v2(void **c) {
	if (stack.empty()) return 201;
	*c = (void *)(intptr_t)cur;
	cur = stack.back();
	stack.pop_back();
	return 0;
}
API int fake_current() { return cur * 100 + (int)stack.size(); }
API R cuCtxSetCurrent(void *c) { cur = (int)(intptr_t)c; return 0; }
API R cuCtxGetCurrent(void **c) { *c = (void *)(intptr_t)cur; return 0; }
API R cuCtxGetDevice(int *d) { CTX *d = cur - 1; return 0; }
static unsigned long long resets[devices]; // a reset gives the context another number
API R cuCtxGetId(void *c, unsigned long long *id) { if (refs[(intptr_t)c - 1] == 0) return 709; *id = 1 + (intptr_t)c + 100 * resets[(intptr_t)c - 1]; return 0; }

API R cuMemGetInfo_v2(size_t *f, size_t *t) {
	CTX std::lock_guard<std::mutex> l(mu);
	*t = memory;
	*f = memory - used[cur - 1];
	return 0;
}
API R cuMemAlloc_v2(ptr *p, size_t n) {
	UNSAFE CTX std::lock_guard<std::mutex> l(mu);
	if (n == 0) return 1;
	if (n > memory - used[cur - 1]) return 2;
	void *a = aligned_alloc(256, (n + 255) / 256 * 256);
	if (!a) return 2;
	memset(a, 0xCC, n);
	*p = (ptr)a;
	allocs[*p] = {n, cur - 1, false, false, false};
	used[cur - 1] += n;
	return 0;
}
API R cuMemAllocManaged(ptr *p, size_t n, unsigned flags) {
	if (flags != 1) return 1;
	R r = cuMemAlloc_v2(p, n);
	if (r == 0) allocs[*p].managed = true;
	return r;
}
API R cuMemAllocAsync(ptr *p, size_t n, void *) {
	R r = cuMemAlloc_v2(p, n);
	if (r == 0) allocs[*p].pool = true;
	return r;
}
// Says that memory belongs to a context that is not the primary one.
API void fake_other(ptr p) { allocs[p].other = true; }
// The memory is spoilt and never used again.
API R cuMemFree_v2(ptr p) {
	UNSAFE CTX std::lock_guard<std::mutex> l(mu);
	auto i = allocs.find(p);
	if (i == allocs.end() || i->second.dev != cur - 1) return 1;
	memset((void *)p, 0xDD, i->second.n);
	used[cur - 1] -= i->second.n;
	allocs.erase(i);
	return 0;
}
static alloc *at(ptr p, size_t n) {
	auto i = allocs.upper_bound(p);
	if (i == allocs.begin()) return nullptr;
	--i;
	return p - i->first <= i->second.n && n <= i->second.n - (p - i->first) ? &i->second : nullptr;
}
static bool known(ptr p, size_t n) {
	std::lock_guard<std::mutex> l(mu);
	alloc *a = at(p, n);
	return a && a->dev == cur - 1;
}
API R cuMemHostRegister_v2(void *p, size_t n, unsigned flags) {
	UNSAFE CTX if (flags != 1) return 1;
	std::lock_guard<std::mutex> l(mu);
	for (auto &r : pins)
		if ((ptr)p < r.first + r.second && r.first < (ptr)p + n) return 712;
	pins[(ptr)p] = n;
	return 0;
}
API R cuMemHostUnregister(void *p) {
	UNSAFE CTX std::lock_guard<std::mutex> l(mu);
	return pins.erase((ptr)p) ? 0 : 713;
}
// 0: pageable, 1: pinned, 2: both
static int pinned(void *p, size_t n) {
	std::lock_guard<std::mutex> l(mu);
	for (auto &r : pins) {
		if (r.first <= (ptr)p && (ptr)p + n <= r.first + r.second) return 1;
		if ((ptr)p < r.first + r.second && r.first < (ptr)p + n) return 2;
	}
	return 0;
}
API R cuMemHostAlloc(void **p, size_t n, unsigned) {
	CTX *p = aligned_alloc(4096, (n + 4095) / 4096 * 4096);
	memset(*p, 0xCC, n);
	return cuMemHostRegister_v2(*p, n, 1);
}
API R cuPointerGetAttributes(unsigned n, int *what, void **data, ptr p) {
	CTX unsigned type = 0;
	int device = -2;
	bool managed = false;
	intptr_t context = 0;
	if (pinned((void *)p, 1)) type = 1, device = 0, context = 1;
	{
		std::lock_guard<std::mutex> l(mu);
		if (alloc *a = at(p, 0)) {
			type = 2, device = a->dev, managed = a->managed;
			context = a->other ? 99 : a->pool ? 0 : device + 1;
		}
	}
	for (unsigned i = 0; i < n; i++) {
		if (what[i] == 1) *(intptr_t *)data[i] = context;
		else if (what[i] == 2) *(unsigned *)data[i] = type;
		else if (what[i] == 8) *(bool *)data[i] = managed;
		else if (what[i] == 9) *(int *)data[i] = device;
		else return 1;
	}
	return 0;
}
API R cuMemFreeHost(void *p) {
	R r = cuMemHostUnregister(p);
	if (r == 0) free(p);
	return r;
}
// Keeps copies to the host from being made, or from being kept.
static std::mutex held_mu;
static std::condition_variable held_c;
static bool held;
static std::atomic<size_t> moved; // bytes that were copied to the host
API size_t fake_moved() { return moved; }
API void fake_hold(int on) {
	std::lock_guard<std::mutex> l(held_mu);
	held = on;
	held_c.notify_all();
}
static R copy(streamp s, void *to, void *from, size_t n, void *host) {
	int kind = host ? pinned(host, n) : 1;
	if (kind == 2) return 1;
	s->push([=] { memcpy(to, from, n); }); // also if it is pageable: that may run late
	return 0;
}
API R cuMemcpyHtoDAsync_v2(ptr d, void *h, size_t n, void *st) {
	STREAM(st) if (!known(d, n)) return 1;
	return copy(s, (void *)d, h, n, h);
}
API R cuMemcpyDtoHAsync_v2(void *h, ptr d, size_t n, void *st) {
	STREAM(st) if (!known(d, n)) return 1;
	moved += n;
	s->push([] {
		std::unique_lock<std::mutex> l(held_mu);
		held_c.wait(l, [] { return !held; });
	});
	return copy(s, h, (void *)d, n, h);
}
API R cuMemcpyDtoDAsync_v2(ptr to, ptr from, size_t n, void *st) {
	STREAM(st) if (!known(to, n) || !known(from, n)) return 1;
	return copy(s, (void *)to, (void *)from, n, nullptr);
}
struct side3 { size_t x, y, z, level; int kind; void *host; ptr device; void *array, *reserved; size_t pitch, height; };
struct copy3 { side3 src, dst; size_t width, height, depth; };
API R cuMemcpy3DAsync_v2(const copy3 *c, void *st) {
	STREAM(st) copy3 v = *c;
	if (!v.width || !v.height || !v.depth) return 1;
	for (side3 *s : {&v.src, &v.dst}) {
		if (s->kind != 2 || s->x || s->y || s->z || s->pitch < v.width || (v.depth > 1 && s->height < v.height)) return 1;
		if (!known(s->device, (v.depth - 1) * s->height * s->pitch + (v.height - 1) * s->pitch + v.width)) return 1;
	}
	s->push([=] {
		for (size_t z = 0; z < v.depth; z++)
			for (size_t y = 0; y < v.height; y++)
				memcpy((char *)v.dst.device + (z * v.dst.height + y) * v.dst.pitch, (char *)v.src.device + (z * v.src.height + y) * v.src.pitch, v.width);
	});
	return 0;
}
static bool peers[devices + 1][devices + 1]; // by context
static std::atomic<size_t> peer_moved;
API size_t fake_peer_moved() { return peer_moved; }
API R cuDeviceCanAccessPeer(int *can, int a, int b) { *can = a != b && !getenv("FAKE_CUDA_NO_PEERS"); return 0; }
API R cuCtxEnablePeerAccess(intptr_t other, unsigned flags) {
	CTX if (flags || other < 1 || other > devices || other == cur) return 1;
	std::lock_guard<std::mutex> l(mu);
	if (peers[cur][other]) return 704;
	peers[cur][other] = true;
	return 0;
}
API R cuMemcpyPeerAsync(ptr to, intptr_t toctx, ptr from, intptr_t fromctx, size_t n, void *st) {
	STREAM(st) std::unique_lock<std::mutex> l(mu);
	alloc *a = at(to, n), *b = at(from, n);
	if (!a || !b || a->dev != toctx - 1 || b->dev != fromctx - 1 || toctx != cur || !peers[toctx][fromctx]) return 1;
	l.unlock();
	peer_moved += n;
	return copy(s, (void *)to, (void *)from, n, nullptr);
}

API R cuMemcpyHtoD_v2(ptr d, void *h, size_t n) { CTX if (!known(d, n)) return 1; memcpy((void *)d, h, n); return 0; }
API R cuMemcpyDtoH_v2(void *h, ptr d, size_t n) { CTX if (!known(d, n)) return 1; memcpy(h, (void *)d, n); return 0; }
API R cuMemsetD32Async(ptr d, unsigned v, size_t n, void *st) {
	STREAM(st) if (!known(d, 4 * n)) return 1;
	s->push([=] { for (size_t i = 0; i < n; i++) ((unsigned *)d)[i] = v; });
	return 0;
}

static std::vector<std::weak_ptr<stream>> all_streams; // of all devices
API R cuCtxSynchronize() {
	CTX std::vector<streamp> list;
	{
		std::lock_guard<std::mutex> l(mu);
		for (auto &w : all_streams)
			if (auto s = w.lock())
				if (s->dev == cur - 1 && !s->dead) list.push_back(s);
	}
	for (auto &s : list) s->wait(s->given);
	return 0;
}
// What was in the context is gone. Nobody may use it; it is not freed here.
API R cuDevicePrimaryCtxReset_v2(int d) {
	std::lock_guard<std::mutex> l(mu);
	for (auto i = allocs.begin(); i != allocs.end();)
		i = i->second.dev == d ? allocs.erase(i) : std::next(i);
	for (auto &w : all_streams)
		if (auto s = w.lock())
			if (s->dev == d) s->dead = true;
	pins.clear();
	used[d] = 0, resets[d]++, refs[d] = 0;
	return 0;
}
API R cuStreamCreate(void **h, unsigned flags) {
	CTX if (flags != 1) return 1;
	auto s = new streamp(new stream(cur - 1));
	*h = s;
	std::lock_guard<std::mutex> l(mu);
	live_streams++;
	all_streams.push_back(*s);
	return 0;
}
API R cuStreamDestroy_v2(void *h) {
	{ STREAM(h) }
	delete (streamp *)h;
	std::lock_guard<std::mutex> l(mu);
	live_streams--;
	return 0;
}
API R cuStreamSynchronize(void *h) { STREAM(h) s->wait(s->given); return 0; }
API R cuStreamQuery(void *h) { STREAM(h) return s->passed(s->given) ? 0 : 600; }
API R cuEventCreate(void **h, unsigned flags) {
	CTX if ((flags | 1) != 3) return 1;
	*h = new event();
	std::lock_guard<std::mutex> l(mu);
	live_events++;
	return 0;
}
API R cuEventDestroy_v2(void *h) {
	CTX delete (event *)h;
	std::lock_guard<std::mutex> l(mu);
	live_events--;
	return 0;
}
API R cuEventRecord(void *h, void *st) {
	STREAM(st) event *e = (event *)h;
	std::lock_guard<std::mutex> l(e->m);
	e->s = s;
	e->at = s->push([] {});
	return 0;
}
static std::pair<streamp, uint64_t> ticket(void *h) {
	event *e = (event *)h;
	std::lock_guard<std::mutex> l(e->m);
	return {e->s, e->at};
}
API R cuEventQuery(void *h) {
	CTX auto t = ticket(h);
	return !t.first || t.first->passed(t.second) ? 0 : 600;
}
API R cuEventSynchronize(void *h) {
	CTX auto t = ticket(h);
	if (t.first) t.first->wait(t.second);
	return lost[cur - 1];
}
API R cuStreamWaitEvent(void *st, void *h, unsigned) {
	STREAM(st) auto t = ticket(h);
	if (t.first && t.first != s) s->push([t] { t.first->wait(t.second); });
	return 0;
}

// Modules: the "machine code" is the path of a library.
struct function { int dev; void *module; int index; const char *name; size_t n; const size_t *sizes; };
typedef int (*list_fn)(int, const char **, const size_t **, size_t *);
typedef void (*launch_fn)(int, const unsigned *, const unsigned *, void **);
API R cuModuleLoadDataEx(void **m, const char *image, unsigned n, const int *options, void **values) {
	CTX if (n != 2 || options[0] != 5 || options[1] != 6) return 1;
	bool ptx = cur == 2;
	if (strncmp(image, ptx ? "PTX:" : "BIN:", 4) != 0) {
		snprintf((char *)values[0], (size_t)values[1], "not an image for this device");
		return 209;
	}
	void *lib = dlopen(image + 4, RTLD_NOW | RTLD_LOCAL);
	*m = new void *(lib);
	if (!lib) {
		snprintf((char *)values[0], (size_t)values[1], "%s", dlerror());
		return 200;
	}
	std::lock_guard<std::mutex> l(mu);
	live_modules++;
	return 0;
}
// The kernel of lib/digest.cu, which is given as text; here is another digest.
API R cuModuleLoadData(void **m, const char *image) {
	CTX if (!strstr(image, ".entry cairn_digest(")) return 209;
	*m = new void *(nullptr);
	std::lock_guard<std::mutex> l(mu);
	live_modules++;
	return 0;
}
static void digest_blocks(const char *data, uint64_t words, uint64_t *digests, unsigned *list, unsigned *count, unsigned blocks) {
	for (unsigned b = 0; b < blocks; b++) {
		uint64_t from = (uint64_t)b << 15, to = std::min(from + (1 << 15), 16 * words), h[4] = {1, 2, 3, 4};
		for (; from < to; from += 8) {
			uint64_t v;
			memcpy(&v, data + from, 8);
			h[from / 8 % 4] = (h[from / 8 % 4] ^ v) * 0x9e3779b97f4a7c15u + (h[from / 8 % 4] >> 29);
		}
		if (memcmp(h, digests + 4 * b, sizeof h) != 0) list[(*count)++] = b;
		memcpy(digests + 4 * b, h, sizeof h);
	}
}
API R cuModuleUnload(void *m) {
	CTX if (*(void **)m) dlclose(*(void **)m);
	delete (void **)m;
	std::lock_guard<std::mutex> l(mu);
	live_modules--;
	return 0;
}
API R cuModuleGetFunction(void **f, void *m, const char *name) {
	CTX if (!*(void **)m) {
		static const size_t sizes[] = {8, 8, 8, 8, 8, 4};
		*f = new function{cur - 1, m, -1, "cairn_digest", 6, sizes};
		return 0;
	}
	list_fn list = (list_fn)dlsym(*(void **)m, "mock_list");
	function x{cur - 1, m, 0, nullptr, 0, nullptr};
	for (; list(x.index, &x.name, &x.sizes, &x.n); x.index++)
		if (strcmp(x.name, name) == 0) {
			*f = new function(x);
			return 0;
		}
	return 500;
}
API R cuFuncGetAttribute(int *v, int a, void *) { CTX *v = a == 0 ? 1024 : a == 1 ? 128 : 0; return 0; }
API R cuFuncSetAttribute(void *, int a, int v) { CTX return a == 8 && v > 0 && v <= 200 << 10 ? 0 : 1; }
API R cuFuncGetParamInfo(void *f, size_t i, size_t *off, size_t *size) {
	CTX function *x = (function *)f;
	if (cur == 2 || i >= x->n) return 1;
	*off = 0;
	*size = x->sizes[i];
	return 0;
}
API R cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
	unsigned shared, void *st, void **params, void **extra) {
	STREAM(st) function x = *(function *)f;
	if (x.dev != s->dev || extra || shared > 200 << 10) return 1;
	auto data = std::make_shared<std::vector<std::vector<char>>>();
	for (size_t i = 0; i < x.n; i++)
		data->emplace_back((char *)params[i], (char *)params[i] + x.sizes[i]);
	if (x.index < 0) {
		auto arg = [data](size_t i) { uint64_t v = 0; memcpy(&v, (*data)[i].data(), (*data)[i].size()); return v; };
		if (bx != 256 || !known(arg(0), 16 * arg(1)) || !known(arg(2), 32 * arg(5)) || !known(arg(3), 4 * arg(5)) || !known(arg(4), 4)) return 1;
		s->push([=] { digest_blocks((char *)arg(0), arg(1), (uint64_t *)arg(2), (unsigned *)arg(3), (unsigned *)arg(4), (unsigned)arg(5)); });
		return 0;
	}
	launch_fn launch = (launch_fn)dlsym(*(void **)x.module, "mock_launch");
	s->push([=] {
		unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
		std::vector<void *> p;
		for (auto &v : *data) p.push_back(v.data());
		launch(x.index, grid, block, p.data());
	});
	return 0;
}

// NVRTC.
struct program { std::string source, name, log, image; };
static std::string dir() {
	Dl_info i;
	dladdr((void *)&dir, &i);
	std::string s = i.dli_fname;
	return s.substr(0, s.rfind('/'));
}
API R nvrtcVersion(int *a, int *b) { *a = 13, *b = 0; return 0; }
API const char *nvrtcGetErrorString(R) { return "NVRTC_ERROR_COMPILATION"; }
API R nvrtcGetNumSupportedArchs(int *n) { *n = 3; return 0; }
API R nvrtcGetSupportedArchs(int *a) { a[0] = 75, a[1] = 80, a[2] = 90; return 0; }
API R nvrtcCreateProgram(program **p, const char *src, const char *name, int n, const char **, const char **) {
	if (n) return 1;
	*p = new program{src, name, "", ""};
	return 0;
}
API R nvrtcDestroyProgram(program **p) { delete *p; *p = nullptr; return 0; }
API R nvrtcGetProgramLogSize(program *p, size_t *n) { *n = p->log.size() + 1; return 0; }
API R nvrtcGetProgramLog(program *p, char *s) { strcpy(s, p->log.c_str()); return 0; }
API R nvrtcGetCUBINSize(program *p, size_t *n) { *n = p->image.compare(0, 3, "BIN") ? 0 : p->image.size() + 1; return 0; }
API R nvrtcGetCUBIN(program *p, char *s) { strcpy(s, p->image.c_str()); return 0; }
API R nvrtcGetPTXSize(program *p, size_t *n) { *n = p->image.size() + 1; return 0; }
API R nvrtcGetPTX(program *p, char *s) { strcpy(s, p->image.c_str()); return 0; }

static void replace(std::string &s, const std::string &a, const std::string &b) {
	for (size_t i = 0; (i = s.find(a, i)) != std::string::npos; i += b.size()) s.replace(i, a.size(), b);
}
API R nvrtcCompileProgram(program *p, int n, const char **options) {
	std::string flags = "-w -std=c++17 -O0 -shared -fPIC -fno-exceptions";
	bool ptx = false, device = false;
	for (int i = 0; i < n; i++) {
		std::string o = options[i];
		if (o == "--fmad=false") flags += " -ffp-contract=off";
		else if (o == "--fmad=true") flags += " -ffp-contract=fast";
		else if (o == "--gpu-architecture=compute_90") ptx = true;
		else if (o == "--device-as-default-execution-space") device = true;
		else if (o != "--gpu-architecture=sm_90" && o != "--std=c++17" && o != "--prec-div=true" && o != "--prec-sqrt=true" && o != "--ftz=false") {
			p->log = "unknown option " + o;
			return 5;
		}
	}
	if (!device) return 5;
	static std::mutex once;
	std::lock_guard<std::mutex> l(once);
	static int count;
	static std::map<std::string, std::string> seen;
	std::string key = flags + p->source;
	if (seen.count(key)) {
		p->image = (ptx ? "PTX:" : "BIN:") + seen[key];
		return 0;
	}
	std::string base = dir() + "/program" + std::to_string(getpid()) + "." + std::to_string(count++);
	std::string text = p->source, kernels;
	replace(text, "extern __shared__", "extern thread_local");
	const std::string head = "extern \"C\" __global__";
	for (size_t i = 0; (i = text.find(head, i)) != std::string::npos;) {
		size_t open = text.find('(', text.find("void", i)), name = open, brace = text.find('{', open), end = brace;
		while (name > 0 && (isalnum((unsigned char)text[name - 1]) || text[name - 1] == '_')) name--;
		for (int depth = 0; end < text.size(); end++) {
			if (text[end] == '{') depth++;
			if (text[end] == '}' && --depth == 0) break;
		}
		std::string k = text.substr(name, open - name);
		bool barriers = text.substr(brace, end - brace).find("barrier") != std::string::npos;
		kernels += "mock::make(\"" + k + "\", cairn::kernels::" + k + ", " + (barriers ? "true" : "false") + "),\n";
		i = end;
	}
	FILE *f = fopen((base + ".cpp").c_str(), "w");
	if (!f) return 1;
	fprintf(f, "#include \"mock.h\"\n%s\n"
		"namespace cairn { alignas(32) thread_local unsigned char cairn_local_memory[200 << 10]; }\n"
		"static mock::kernel mock_kernels[] = {\n%s{}};\n"
		"extern \"C\" int mock_list(int i, const char **name, const size_t **sizes, size_t *n) {\n"
		"	if (!mock_kernels[i].name) return 0;\n"
		"	auto &k = mock_kernels[i];\n"
		"	*name = k.name, *sizes = k.sizes, *n = k.n;\n"
		"	return 1;\n"
		"}\n"
		"extern \"C\" void mock_launch(int i, const unsigned *grid, const unsigned *block, void **params) {\n"
		"	auto &k = mock_kernels[i];\n"
		"	mock::call c{k.go, k.f, params};\n"
		"	mock::m.body = [](void *a) { auto c = (mock::call *)a; c->go(c->f, c->params); };\n"
		"	mock::m.arg = &c;\n"
		"	gridDim = {grid[0], grid[1], grid[2]}, blockDim = {block[0], block[1], block[2]};\n"
		"	for (unsigned z = 0; z < grid[2]; z++)\n"
		"		for (unsigned y = 0; y < grid[1]; y++)\n"
		"			for (unsigned x = 0; x < grid[0]; x++) {\n"
		"				blockIdx = {x, y, z};\n"
		"				mock::group(k.barriers);\n"
		"			}\n"
		"}\n", text.c_str(), kernels.c_str());
	fclose(f);
	std::string cmd = "g++ " + flags + " -I '" + dir() + "' -o '" + base + ".so' '" + base + ".cpp' 2>&1";
	FILE *out = popen(cmd.c_str(), "r");
	char line[4096];
	while (out && fgets(line, sizeof line, out)) p->log += line;
	if (!out || pclose(out) != 0) return 6;
	seen[key] = base + ".so";
	p->image = (ptx ? "PTX:" : "BIN:") + base + ".so";
	return 0;
}
