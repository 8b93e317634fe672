#include <string>
#include <string_view>

#include "bench/distributed/bench.h"
#include "bench/harness/graph_cost.h"
#include "graph/formats/parse.h"
#include "mytorch/compile.h"
#include "mytorch/error.h"
#include "plan/captured.h"
#include "plan/machine.h"
#include "plan/step.h"

namespace bench {

namespace plan = mytorch::plan;

namespace {

plan::Machine machine_of(const Settings& settings) {
  return settings.machine.empty() ? plan::machine_of(settings.gpu, "ib400")
                                  : plan::read_machine(settings.machine);
}

}  // namespace

void predict(Record& record, const Settings& settings, const Shape& shape) {
  plan::check(shape.model);
  if (const std::string why = plan::reason_against(shape.model, shape.layout); !why.empty()) {
    record.add("unpredicted", why);
    return;
  }
  const plan::Machine machine = machine_of(settings);
  const plan::Step s = plan::step_of(shape.model, shape.layout, shape.precision, machine);
  const double exchange = s.tensor + s.context + s.expert + s.pipeline + (shape.data ? s.data : 0);
  const double seconds = s.compute + s.bubble + exchange + (shape.optimizer ? s.optimizer : 0);
  record.add("predicted_ms", 1e3 * seconds)
      .add("predicted_compute_ms", 1e3 * s.compute)
      .add("predicted_exchange_ms", 1e3 * exchange)
      .add("predicted_bubble_ms", 1e3 * s.bubble);
}

void predict_step(Record& record, const Settings& settings, const Group& world, const Step& step) {
  auto recorded = mytorch::compile(step);
  plan::Captured captured;
  try {
    (void)recorded();
    const mytorch::graph::Graph graph = mytorch::graph::parse_text(recorded.text());
    captured = mytorch::bench::captured_step(graph);
  } catch (const mytorch::Error& error) {  // a step that a graph cannot hold
    record.add("unpredicted", error.what());
    return;
  }
  const plan::Step s = plan::plan_of(captured, machine_of(settings), world.size(), 0).step;
  record.add("predicted_ms", 1e3 * (s.seconds() - s.host))
      .add("predicted_compute_ms", 1e3 * s.compute)
      .add("predicted_exchange_ms", 1e3 * s.data)
      .add("predicted_kernels", static_cast<double>(captured.kernels.size()));
}

void predict_attention(Record& record, const Settings& settings, const Group& world,
                       const plan::SplitAttention& attention, bool ring) {
  const plan::Machine machine = machine_of(settings);
  plan::AttentionTime sum;
  for (const bool backward : {false, true}) {
    const plan::AttentionTime time = (ring ? plan::ring_attention : plan::ulysses_attention)(
        machine, attention, {world.size(), 1}, backward);
    sum.compute += time.compute;
    sum.exchange += time.exchange;
  }
  record.add("predicted_ms", 1e3 * (sum.compute + sum.exchange))
      .add("predicted_compute_ms", 1e3 * sum.compute)
      .add("predicted_exchange_ms", 1e3 * sum.exchange);
}

plan::Model feed_forward_model(int64_t layers, int64_t width, int64_t hidden, int64_t sequence,
                               int64_t batch) {
  plan::Model model;
  model.name = "feed-forward layers";
  model.layers = layers;
  model.width = width;
  model.hidden = hidden;
  model.sequence = sequence;
  model.batch = batch;
  return model;
}

}  // namespace bench
