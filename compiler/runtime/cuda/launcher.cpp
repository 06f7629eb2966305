// Launches a CUDA kernel with little overhead: one call from Python, which inspects no tensors.
// The driver is opened by name, so that this compiles without CUDA headers.
#include <dlfcn.h>
#include <stdint.h>

typedef int (*LaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned, void*, void**, void**);
typedef int (*LoadData)(void**, const void*);
typedef int (*GetFunction)(void**, void*, const char*);
typedef int (*SetAttribute)(void*, int, int);
typedef int (*GetAttribute)(int*, int, void*);
typedef int (*GetErrorString)(int, const char**);
typedef int (*GetContext)(void**);
typedef int (*SetContext)(void*);
typedef int (*RetainContext)(void**, int);

static LaunchKernel launch_kernel;
static LoadData load_data;
static GetFunction get_function;
static SetAttribute set_attribute;
static GetAttribute get_attribute;
static GetErrorString get_error_string;
static GetContext get_context;
static SetContext set_context;
static RetainContext retain_context;

enum { MISSING = -1, NO_DRIVER = -2, TOO_MANY_PROGRAMS = -3, MOST = 1024 };
enum { SHARED_BYTES = 8, LOCAL_BYTES = 3, REGISTERS = 4, NO_CONTEXT = 201 };

struct Variant {
  void* function;
  uint32_t threads, shared;
};

// The index of a variant has three bits. Bit 0: all sizes are multiples of 16. Bit 1: all addresses
// are multiples of 16. Bit 2: indices need int64.
struct Kernel {
  Variant variants[8];
  int64_t xblock, yblock;
  int32_t pointers, sizes, numbers, device;
};

extern "C" int tcd_open() {
  if (launch_kernel) return 0;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return NO_DRIVER;
  load_data = (LoadData)dlsym(driver, "cuModuleLoadData");
  get_function = (GetFunction)dlsym(driver, "cuModuleGetFunction");
  set_attribute = (SetAttribute)dlsym(driver, "cuFuncSetAttribute");
  get_attribute = (GetAttribute)dlsym(driver, "cuFuncGetAttribute");
  get_error_string = (GetErrorString)dlsym(driver, "cuGetErrorString");
  get_context = (GetContext)dlsym(driver, "cuCtxGetCurrent");
  set_context = (SetContext)dlsym(driver, "cuCtxSetCurrent");
  retain_context = (RetainContext)dlsym(driver, "cuDevicePrimaryCtxRetain");
  launch_kernel = (LaunchKernel)dlsym(driver, "cuLaunchKernel");
  return launch_kernel ? 0 : NO_DRIVER;
}

// A thread that has not used the GPU yet, such as a thread of autograd, has no current context.
extern "C" int tcd_enter(int device) {
  void* context = 0;
  int status = get_context(&context);
  if (!status && !context) status = retain_context(&context, device);
  return status ? status : set_context(context);
}

// Loads a cubin into the current context. Reports the registers and spilled bytes per thread.
extern "C" int tcd_load(const void* cubin, const char* name, int shared, void** function,
                        int* registers, int* spilled) {
  void* module;
  int status = load_data(&module, cubin);
  if (!status) status = get_function(function, module, name);
  if (!status && shared > 48 * 1024) status = set_attribute(*function, SHARED_BYTES, shared);
  if (!status) status = get_attribute(registers, REGISTERS, *function);
  if (!status) status = get_attribute(spilled, LOCAL_BYTES, *function);
  return status;
}

extern "C" const char* tcd_error(int status) {
  const char* text = 0;
  if (get_error_string) get_error_string(status, &text);
  return text ? text : "unknown";
}

extern "C" int tcd_variant(const Kernel* kernel, int64_t wide, const int64_t* given) {
  int64_t addresses = 0, sizes = 0;
  for (int i = 0; i < kernel->pointers; ++i) addresses |= given[i];
  for (int i = 0; i < kernel->sizes; ++i) sizes |= given[kernel->pointers + i];
  return (wide ? 4 : 0) | (addresses & 15 ? 0 : 2) | (sizes & 15 ? 0 : 1);
}

extern "C" int tcd_launch(const Kernel* kernel, void* stream, int64_t wide, int64_t x, int64_t y,
                          int64_t alone, int64_t* given) {
  const Variant& variant = kernel->variants[tcd_variant(kernel, wide, given)];
  if (!variant.function) return MISSING;
  const int64_t programs = (x + kernel->xblock - 1) / kernel->xblock *
                           ((y + kernel->yblock - 1) / kernel->yblock) * alone;
  if (programs == 0) return 0;
  if (programs > 0x7fffffff) return TOO_MANY_PROGRAMS;
  const int count = kernel->pointers + kernel->sizes + kernel->numbers;
  int64_t no_scratch = 0;
  void* parameters[MOST + 2];
  for (int i = 0; i < count; ++i) parameters[i] = given + i;
  parameters[count] = parameters[count + 1] = &no_scratch;
  const auto launch = [&] {
    return launch_kernel(variant.function, (unsigned)programs, 1, 1, variant.threads, 1, 1,
                         variant.shared, stream, parameters, 0);
  };
  const int status = launch();
  return status == NO_CONTEXT && !tcd_enter(kernel->device) ? launch() : status;
}
