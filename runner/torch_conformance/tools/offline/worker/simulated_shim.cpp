#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device) const override { return getDevice(); }
  Device getDevice() const override { return Device(DeviceType::CUDA, 0); }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const override { return stream(); }
  Stream getDefaultStream(Device) const override { return stream(); }
  Stream getNewStream(Device, int) const override { return stream(); }
  Stream exchangeStream(Stream) const override { return stream(); }
  DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}

 private:
  static Stream stream() { return Stream(Stream::DEFAULT, Device(DeviceType::CUDA, 0)); }
};

bool has_cudnn = false;

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  bool hasCuDNN() const override { return has_cudnn; }
  bool compiledWithCuDNN() const override { return has_cudnn; }
  bool supportsDilatedConvolutionWithCuDNN() const override { return has_cudnn; }
  bool supportsDepthwiseConvolutionWithCuDNN() const override { return has_cudnn; }
  bool supportsBFloat16ConvolutionWithCuDNNv8() const override { return has_cudnn; }
  bool supportsBFloat16RNNWithCuDNN() const override { return has_cudnn; }
  long versionCuDNN() const override { return CUDNN; }
  long versionRuntimeCuDNN() const override { return CUDNN; }
  double batchnormMinEpsilonCuDNN() const override { return 0.0; }
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  int getNumGPUs() const override { return 1; }
  void deviceSynchronize(DeviceIndex) const override {}
};

std::unique_ptr<at::CUDAHooksInterface> make_hooks(at::CUDAHooksArgs args) { return std::make_unique<Hooks>(args); }
const Guard guard;

}  // namespace

// A wheel with CUDA registers hooks of its own while it is imported: these have priority.
extern "C" void simulate_hooks(bool cudnn) {
  has_cudnn = cudnn;
  at::CUDAHooksRegistry()->Register("CUDAHooks", make_hooks, c10::REGISTRY_PREFERRED);
}

extern "C" void simulate_guard() {
  c10::impl::device_guard_impl_registry[static_cast<size_t>(DeviceType::CUDA)].store(&guard);
}
