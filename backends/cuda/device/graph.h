// Capture of streams into CUDA graphs, and their replay: functions of the contract (mt_device_ops).
#pragma once

#include <cstdint>

namespace mytorch::cuda {

int begin_graph(void* self, int32_t index, void* stream);
void* end_graph(void* self, int32_t index, void* stream);
int launch_graph(void* self, int32_t index, void* graph, void* stream);
void destroy_graph(void* self, int32_t index, void* graph);

// Notes that a stream has waited for an event, by which it may have become part of a capture.
void note_branch(void* stream);

}  // namespace mytorch::cuda
