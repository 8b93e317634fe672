// The entry point of the backend "graph": no kernels, only regions.
#include "mytorch/backend.h"

#include "compiler.h"

extern "C" MT_EXPORT int mt_backend_init(const mt_host* host, mt_backend* backend) {
  static constexpr mt_region_ops kRegions =
      mytorch::sdk::region_ops<&loops::claim, loops::Compiled>();
  mytorch::sdk::BackendInfo info;
  info.name = "graph";
  info.version = "1.0";
  info.device_type = "cpu";
  info.regions = &kRegions;
  info.describe = [](void*) { return "products and pointwise operators as loops over buffers"; };
  return mytorch::sdk::fill_backend(host, backend, info);
}
