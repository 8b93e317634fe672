// launch() of the emulated device, in place of that of the backend's header.
#pragma once

#define launch launch_on_gpu
#include_next "backends/cuda/runtime/launch.h"
#undef launch

#include "tests/backends/cuda/emulated/device.h"

namespace mytorch::cuda {

template <class... Params, class... Args>
void launch(mt_ctx& /*ctx*/, const char* /*name*/, void (*kernel)(Params...), const Grid& grid,
            const Args&... args) {
  emulated::run_grid(grid.blocks, grid.threads, grid.shared, [&] { kernel(args...); });
}

}  // namespace mytorch::cuda
