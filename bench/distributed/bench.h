// What the cases of bench_distributed share: settings, timing, and the lines of results.
#pragma once

#include <cstdint>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "mytorch/distributed.h"
#include "mytorch/mytorch.h"
#include "plan/attention.h"
#include "plan/layout.h"
#include "plan/model.h"

namespace bench {

struct Settings {
  mytorch::Device device = mytorch::kCPU;
  bool tiny = false;       // sizes that a CPU computes in a moment
  int samples = 5;         // of which the median is taken
  int steps = 3;           // of a sample, at most
  double seconds = 15;     // for all samples of a measurement, about
  bool recompute = false;  // activation checkpointing, in fsdp
  std::string model = "1.3b";
  std::string gpu = "h200", machine;  // what `mytorch plan` predicts for

  int64_t size(int64_t full, int64_t small) const { return tiny ? small : full; }
  // Of parameters and activations where no autocast is at work.
  mytorch::ScalarType dtype() const {
    return device.is_cpu() ? mytorch::kFloat32 : mytorch::kBFloat16;
  }
};

using Group = mytorch::distributed::Group;
// Computes one step, and returns its loss without gradients, or an undefined tensor.
using Step = std::function<mytorch::Tensor()>;

// A line of JSON, which rank 0 prints.
class Record {
 public:
  Record(std::string_view name, const Group& world);
  Record& add(std::string_view key, double value);
  Record& add(std::string_view key, const std::vector<double>& values);
  Record& add(std::string_view key, std::string_view value);
  void print() const;

 private:
  std::ostringstream text_;
  bool prints_;
};

// Seeds the default generator for what differs on the ranks, such as batches. Before, it gives the
// same weights on all ranks.
void seed_data(const Group& world);

// A number of the slowest, or largest, rank.
double largest(const Group& world, double value);

struct Timing {
  double median = 0, least = 0, most = 0;  // seconds of a step, of the slowest rank
};
// Times a step that has been warmed up. All ranks take the same number of steps.
Timing timed(const Group& world, const Settings& settings, const std::function<void()>& step);

// Takes three steps, whose losses (means over the ranks) are added to the record, and times others.
// Adds times, `items` of all ranks a second, and the largest peak of memory of a rank: that of the
// device's allocator or, on the CPU, of the process.
Timing measure(const Group& world, const Settings& settings, Record& record, const Step& step,
               double items, std::string_view unit);

// The seconds of a bare all_reduce of so many bytes of float32.
double all_reduce_seconds(const Group& world, const Settings& settings, int64_t bytes);

// What `mytorch plan` predicts for a step of a model that is divided so.
struct Shape {
  mytorch::plan::Model model;
  mytorch::plan::Layout layout;
  mytorch::plan::Precision precision = {};
  bool optimizer = true;  // whether the step updates parameters
  bool data = true;       // whether it reduces gradients over the ranks
};
// Adds the prediction and its largest parts, without the 10 ms of data and logs, which these steps
// do not have, or the reason why the plan refuses the layout.
void predict(Record& record, const Settings& settings, const Shape& shape);
// The same for a step of data parallelism, from the graph that it is recorded as.
void predict_step(Record& record, const Settings& settings, const Group& world, const Step& step);
// The same for forward and backward of attention alone, over tokens that are divided over the
// ranks.
void predict_attention(Record& record, const Settings& settings, const Group& world,
                       const mytorch::plan::SplitAttention& attention, bool ring);
// Parameters, activations and gradients of 16 bits, without an optimizer.
inline constexpr mytorch::plan::Precision kSixteenBits = {
    .parameter = 2, .gradient = 2, .optimizer = 0, .activation = 2};
// A stack of layers without attention and without a vocabulary.
mytorch::plan::Model feed_forward_model(int64_t layers, int64_t width, int64_t hidden,
                                        int64_t sequence, int64_t batch);

// ---- cases; each prints a record ----

void ddp_gpt2(const Group& world, const Settings& settings);
void ddp_resnet50(const Group& world, const Settings& settings);
void ddp_mlp(const Group& world, const Settings& settings);
void fsdp(const Group& world, const Settings& settings);
void tensor_parallel(const Group& world, const Settings& settings, int64_t width, bool sequence);
void pipeline(const Group& world, const Settings& settings, int64_t micro_batches);
void split_sequences(const Group& world, const Settings& settings, bool ring);
void experts(const Group& world, const Settings& settings);

}  // namespace bench
