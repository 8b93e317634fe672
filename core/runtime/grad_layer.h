// Whether enabling gradients unmasks the autograd layer.
#pragma once

namespace mytorch {

// Set inside vmap, which masks the layer and enters it itself: set_grad_enabled(true) then leaves
// it masked.
extern thread_local constinit bool grad_layer_masked;

}  // namespace mytorch
