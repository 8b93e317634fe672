// The engine of this process and the stream of this thread, and what the CPU can do.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include "mytorch/abi.h"

namespace mytorch::onednn {

const dnnl::engine& engine();
// Of the calling thread. On the CPU what is executed on it is done when the call returns.
dnnl_stream_t stream();

// Why operands of this type are not taken: NULL where the library and this CPU multiply them.
const char* product_type_reason(mt_dtype dtype);
// The same for what is only done in float32 here.
const char* float_type_reason(mt_dtype dtype);

// For `mytorch info`.
const char* describe_engine();

}  // namespace mytorch::onednn
