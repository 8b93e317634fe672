#include "core/tensor/capture_layer.h"

#include "mytorch/options_epoch.h"

namespace mytorch {

std::atomic<uint64_t> detail::options_epoch{0};

const CaptureTable* capture_table = nullptr;
thread_local constinit uint32_t host_accesses __attribute__((tls_model("initial-exec"))) = 0;

}  // namespace mytorch
