// Addresses without memory, and memory that is put behind them: what segments that grow are made
// of.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mytorch::cuda {

// For as much as the device has; NULL where the driver has none. Throws where it knows no such
// thing.
void* reserve_addresses(int32_t device);
void free_addresses(int32_t device, void* base);
// `bytes`, a multiple of 2 MiB, at reserved addresses; false: there is no memory left.
bool map_memory(int32_t device, void* at, size_t bytes);
// The return of a piece as it was mapped, when the device no longer works; false while a stream is
// being recorded, when the device cannot be waited for.
bool unmap_memory(int32_t device, void* at, size_t bytes);

}  // namespace mytorch::cuda
