// What libtorch and snug call of CUDA's runtime and driver. Calls that they make and that are not
// here fail to link, or are answered with "not found" (cudaGetDriverEntryPointByVersion).
// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/kernels/simulated/simulation.h"
#include "core/simulated/device.h"
#include "core/simulated/memory.h"
#include "core/simulated/streams.h"

namespace {

using namespace snug::simulated;  // NOLINT(google-build-using-namespace)
namespace watched = snug::kernels::simulated;

constexpr int kMostShared = 99 << 10;
constexpr int64_t kMappingBytes = int64_t{2} << 20;
constexpr int64_t kPageBytes = 4096;

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

struct EventState {
  Mark mark;
  std::chrono::steady_clock::time_point time;
};

EventState& state_of(cudaEvent_t event) { return *reinterpret_cast<EventState*>(event); }

cudaError_t failed(cudaError_t error) { return last_error = error; }

// After a fault nothing works any more.
cudaError_t status() { return fault().empty() ? cudaSuccess : failed(cudaErrorLaunchFailure); }

void copy_bytes(void* to, const void* from, size_t bytes) {
  const bool to_device = is_device_memory(to), from_device = is_device_memory(from);
  const auto size = static_cast<int64_t>(bytes);
  if (from_device)
    watched::move(to_device ? to : nullptr, from, size);
  else if (to_device)
    watched::touch(to, size, watched::Use::Writes);
  std::memcpy(to, from, bytes);
}

// What leaves memory that is not pinned is taken at once, and what goes there has come when the
// call returns.
cudaError_t copy(void* to, const void* from, size_t bytes, cudaStream_t handle) {
  if (bytes == 0) return status();
  Stream* stream = stream_of(handle);
  if (is_recording(stream) && !(is_device_memory(to) && is_device_memory(from)))
    report_fault("a copy from or to the host in work that is being recorded");
  const auto size = static_cast<int64_t>(bytes);
  if (!is_device_memory(from) && !is_pinned(from)) {
    const auto* begin = static_cast<const char*>(from);
    enqueue(stream, "copy to the device", [to, values = std::vector<char>(begin, begin + bytes)] {
      copy_bytes(to, values.data(), values.size());
    });
  } else {
    const void* host = is_device_memory(to) ? from : to;
    const Work work = enqueue(stream, "copy", [=] {
      const OpenPinned open(host, size);
      copy_bytes(to, from, bytes);
    });
    if (is_pinned(host)) hold_pinned(host, size, /*writes=*/host == to, work);
  }
  if (!is_device_memory(to) && !is_pinned(to)) wait_for(mark(stream));
  return status();
}

// ---- The driver's functions for memory in pieces

CUresult device_get(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

// Handles of memory cannot be shared with other processes.
CUresult device_attribute(int* value, CUdevice_attribute, CUdevice) {
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult reserve(CUdeviceptr* pointer, size_t bytes, size_t alignment, CUdeviceptr, uint64_t) {
  void* start =
      reserve_addresses(static_cast<int64_t>(bytes),
                        std::max<int64_t>(static_cast<int64_t>(alignment), kMappingBytes));
  *pointer = reinterpret_cast<CUdeviceptr>(start);
  return start == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult release_addresses(CUdeviceptr, size_t) { return CUDA_SUCCESS; }

// A handle is the number of its bytes.
CUresult create(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp*,
                uint64_t) {
  if (!take_memory(static_cast<int64_t>(bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = bytes;
  return CUDA_SUCCESS;
}

CUresult release(CUmemGenericAllocationHandle handle) {
  give_memory(static_cast<int64_t>(handle));
  return CUDA_SUCCESS;
}

CUresult map(CUdeviceptr start, size_t bytes, size_t, CUmemGenericAllocationHandle, uint64_t) {
  map_memory(reinterpret_cast<void*>(start), static_cast<int64_t>(bytes));
  return CUDA_SUCCESS;
}

CUresult unmap(CUdeviceptr start, size_t bytes) {
  // The range is one or several mappings.
  for (size_t at = 0; at < bytes; at += kMappingBytes)
    unmap_memory(reinterpret_cast<void*>(start + at),
                 static_cast<int64_t>(std::min<size_t>(bytes - at, kMappingBytes)));
  return CUDA_SUCCESS;
}

CUresult set_access(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; }

CUresult granularity(size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *bytes = kMappingBytes;
  return CUDA_SUCCESS;
}

CUresult error_string(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "error of the simulated GPU";
  return CUDA_SUCCESS;
}

CUresult unsupported() { return CUDA_ERROR_NOT_SUPPORTED; }

const std::map<std::string, void*>& driver() {
  static const std::map<std::string, void*> functions = {
      {"cuDeviceGet", reinterpret_cast<void*>(&device_get)},
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(&device_attribute)},
      {"cuMemAddressReserve", reinterpret_cast<void*>(&reserve)},
      {"cuMemAddressFree", reinterpret_cast<void*>(&release_addresses)},
      {"cuMemCreate", reinterpret_cast<void*>(&create)},
      {"cuMemRelease", reinterpret_cast<void*>(&release)},
      {"cuMemMap", reinterpret_cast<void*>(&map)},
      {"cuMemUnmap", reinterpret_cast<void*>(&unmap)},
      {"cuMemSetAccess", reinterpret_cast<void*>(&set_access)},
      {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(&granularity)},
      {"cuGetErrorString", reinterpret_cast<void*>(&error_string)},
      {"cuMemExportToShareableHandle", reinterpret_cast<void*>(&unsupported)},
      {"cuMemImportFromShareableHandle", reinterpret_cast<void*>(&unsupported)},
      {"cuMemRetainAllocationHandle", reinterpret_cast<void*>(&unsupported)},
      {"cuMemGetAllocationPropertiesFromHandle", reinterpret_cast<void*>(&unsupported)},
      {"cuMemsetD32Async", reinterpret_cast<void*>(&unsupported)},
      {"cuStreamWriteValue32", reinterpret_cast<void*>(&unsupported)},
  };
  return functions;
}

// What cudaMalloc gave, by address.
std::mutex plain_mutex;
std::map<void*, int64_t> plain;

}  // namespace

extern "C" {

// ---- Errors

cudaError_t simulated_refusal(cudaError_t error) { return failed(error); }
cudaError_t cudaGetLastError() {
  const cudaError_t sticky = status();
  const cudaError_t error = last_error;
  last_error = sticky;
  return error;
}
cudaError_t cudaPeekAtLastError() {
  status();
  return last_error;
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    default:
      return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaErrorLaunchFailure) {
    static const std::string text = "simulated GPU: " + fault();
    return text.c_str();
  }
  if (error == cudaErrorMemoryAllocation) return "out of memory";
  if (error == cudaErrorInvalidValue) return "invalid argument";
  if (error == cudaErrorNoDevice) return "no CUDA-capable device is detected";
  return cudaGetErrorName(error);
}

// ---- Devices

cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(visible_devices().size());
  return *count == 0 ? failed(cudaErrorNoDevice) : cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  const int of_machine = device_of_machine(device);
  if (of_machine < 0) return failed(cudaErrorInvalidDevice);
  report_device(of_machine);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  const int of_machine = device_of_machine(device);
  if (of_machine < 0) return failed(cudaErrorInvalidDevice);
  std::snprintf(text, static_cast<size_t>(length), "%s", bus_id(of_machine).c_str());
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "%s", device_name().c_str());
  properties->totalGlobalMem = static_cast<size_t>(capacity());
  properties->major = kMajor;
  properties->minor = kMinor;
  properties->multiProcessorCount = 132;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->warpSize = 32;
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = kMostShared;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = kMajor;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = kMinor;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = kMostShared;
      return cudaSuccess;
    default:
      return failed(cudaErrorInvalidValue);
  }
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return failed(cudaErrorNotSupported); }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  wait_for_all();
  return status();
}

// ---- Memory

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = static_cast<size_t>(free_memory());
  *total = static_cast<size_t>(capacity());
  return status();
}
cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  const auto size = static_cast<int64_t>((bytes + kPageBytes - 1) / kPageBytes * kPageBytes);
  if (!take_memory(size)) return failed(cudaErrorMemoryAllocation);
  *pointer = reserve_addresses(size, kMappingBytes);
  map_memory(*pointer, size);
  const std::lock_guard lock(plain_mutex);
  plain[*pointer] = size;
  return status();
}
cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return status();
  wait_for_all();
  const std::lock_guard lock(plain_mutex);
  const auto found = plain.find(pointer);
  if (found == plain.end()) return failed(cudaErrorInvalidValue);
  unmap_memory(pointer, found->second);
  give_memory(found->second);
  plain.erase(found);
  return status();
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  *pointer = std::aligned_alloc(kPageBytes, (bytes + kPageBytes - 1) / kPageBytes * kPageBytes);
  if (*pointer == nullptr) return failed(cudaErrorMemoryAllocation);
  pin(*pointer, static_cast<int64_t>(bytes));
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* pointer) {
  wait_for_all();
  unpin(pointer);
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* start, size_t bytes, unsigned) {
  pin(start, static_cast<int64_t>(bytes));
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* start) {
  return unpin(start) ? cudaSuccess : failed(cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return copy(to, from, bytes, stream);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  copy(to, from, bytes, nullptr);
  wait_for(mark(stream_of(nullptr)));
  return status();
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  enqueue(stream_of(stream), "memset", [=] {
    watched::touch(to, static_cast<int64_t>(bytes), watched::Use::Writes);
    std::memset(to, value, bytes);
  });
  return status();
}

// ---- Streams and events

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  *stream = reinterpret_cast<cudaStream_t>(make_stream(priority));
  return status();
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = priority_of(stream_of(stream));
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return status(); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  wait_for(mark(stream_of(stream)));
  return status();
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const bool done = is_done(mark(stream_of(stream)));
  if (const cudaError_t error = status(); error != cudaSuccess) return error;
  return done ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  make_wait(stream_of(stream), state_of(event).mark);
  return status();
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* capturing) {
  *capturing =
      is_recording(stream_of(stream)) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* capturing,
                                     unsigned long long* id, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, size_t*) {
  if (id != nullptr) *id = 1;
  return cudaStreamIsCapturing(stream, capturing);
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (!begin_recording(stream_of(stream))) return failed(cudaErrorStreamCaptureUnsupported);
  return status();
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = reinterpret_cast<cudaGraph_t>(end_recording(stream_of(stream)));
  if (*graph == nullptr) return failed(cudaErrorIllegalState);
  return status();
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  *executable = reinterpret_cast<cudaGraphExec_t>(copy_of(reinterpret_cast<const Graph*>(graph)));
  return status();
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (is_recording(stream_of(stream))) return failed(cudaErrorStreamCaptureUnsupported);
  launch(reinterpret_cast<const Graph*>(executable), stream_of(stream));
  return status();
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  destroy(reinterpret_cast<Graph*>(graph));
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  destroy(reinterpret_cast<Graph*>(executable));
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new EventState);
  return status();
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &state_of(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  state_of(event) = {mark(stream_of(stream)), std::chrono::steady_clock::now()};
  return status();
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const bool done = is_done(state_of(event).mark);
  if (const cudaError_t error = status(); error != cudaSuccess) return error;
  return done ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  wait_for(state_of(event).mark);
  return status();
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds =
      std::chrono::duration<float, std::milli>(state_of(end).time - state_of(begin).time).count();
  return status();
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  const auto found = driver().find(symbol);
  *function = found == driver().end() ? nullptr : found->second;
  if (result != nullptr)
    *result =
        *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

}  // extern "C"
