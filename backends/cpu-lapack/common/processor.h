// The kernels that OpenBLAS runs.
#pragma once

namespace mytorch::lapack {

// Has OpenBLAS run the kernels of this processor. It knows processors by their numbers, and takes
// one that is newer than itself for a Prescott of 2004: Debian 12's does so with Intel's of 2023.
// These kernels are slow, and its product of a lower symmetric float32 matrix and a vector reads
// memory that nobody has written, which gives NaN. OPENBLAS_CORETYPE, which the user may set,
// decides as ever. Called when the backend is loaded, before the first routine.
void know_processor();

}  // namespace mytorch::lapack
