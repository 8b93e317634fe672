#include "plan/step.h"

#include <algorithm>
#include <vector>

#include "plan/attention.h"
#include "plan/data_parallel.h"

namespace mytorch::plan {
namespace {

// Seconds of one micro-batch.
struct Part {
  double compute = 0, tensor = 0, context = 0, expert = 0;
  double all() const { return compute + tensor + context + expert; }
  void add(const Part& other, double times) {
    compute += times * other.compute;
    tensor += times * other.tensor;
    context += times * other.context;
    expert += times * other.expert;
  }
};

class Costs {
 public:
  Costs(const Model& model, const Layout& layout, const Precision& precision,
        const Machine& machine)
      : m(model), l(layout), precision_(precision), machine_(machine), gpu(machine.gpu) {}

  Part layer_forward() const {
    Part part = products(false);
    attention(false, part);
    part.compute += stream(1);
    // Before each of the two pairs of products the sequence is gathered, behind it the results are
    // summed and scattered.
    tensor_exchange(4, part);
    experts_exchange(2, part);
    return part;
  }
  Part layer_backward() const {
    Part part = products(true);
    attention(true, part);
    part.compute += stream(2);
    // The same the other way around, and the gathered inputs again for the weights' gradients.
    tensor_exchange(6, part);
    experts_exchange(2, part);
    if (l.recompute == Recompute::kFull) part.add(layer_forward(), 1);
    if (l.recompute == Recompute::kSelective) part.compute += stream(0.5);
    return part;
  }
  // The head and the loss, forward and backward.
  Part head() const {
    if (m.vocabulary == 0) return {};
    const double classes = number(m.vocabulary) / number(l.tensor), width = number(m.width);
    Part part;
    part.compute = linear(tokens, classes, width, false) + linear(tokens, classes, width, true);
    // A loss that is not fused reads or writes logits ten times, mostly in float32. A fused one
    // reads those of a part of the rows twice, and writes their gradient in their place.
    part.compute += m.fused_loss
                        ? stream_seconds(gpu, tokens * classes * 3 * precision_.activation, 3)
                        : stream_seconds(gpu, tokens * classes * 36, 10);
    tensor_exchange(3, part);
    return part;
  }

  double tokens_bytes() const { return tokens * number(m.width) * precision_.activation; }

 private:
  // A product (t, in) x (in, out), or the two of its gradients.
  double linear(double t, double out, double in, bool backward) const {
    if (!backward) return matmul_seconds(gpu, t, out, in);
    return matmul_seconds(gpu, t, in, out) + matmul_seconds(gpu, in, out, t);
  }

  Part products(bool backward) const {
    const double tp = number(l.tensor), d = number(m.head_width), width = number(m.width);
    const double key_heads = std::max(1.0, number(m.key_heads) / tp);
    const double heads = number(m.heads) / tp, hidden = number(m.hidden) / tp;
    const double up = (m.gated ? 2 : 1) * hidden;
    Part part;
    if (m.heads > 0) {
      part.compute = linear(tokens, d * (heads + 2 * key_heads), width, backward) +
                     linear(tokens, width, d * heads, backward);
    }
    if (m.experts == 0) {
      part.compute += linear(tokens, up, width, backward) + linear(tokens, width, hidden, backward);
      return part;
    }
    // Each rank has some experts, whose tokens come from all ranks that share them.
    const double here = number(m.experts / l.expert);
    const double rows = tokens * number(m.top_k) / here;
    part.compute +=
        linear(tokens, number(m.experts), width, backward) +
        here * (linear(rows, up, width, backward) + linear(rows, width, hidden, backward));
    return part;
  }

  void attention(bool backward, Part& part) const {
    if (m.heads == 0) return;
    const double tp = number(l.tensor);
    const SplitAttention whole{.batch = number(l.micro_batch),
                               .heads = number(m.heads) / tp,
                               .key_heads = std::max(1.0, number(m.key_heads) / tp),
                               .length = number(m.sequence),
                               .width = number(m.head_width),
                               .element = precision_.activation};
    const AttentionTime time = ring_attention(machine_, whole, {l.context, l.tensor}, backward);
    part.compute += time.compute;
    part.context += time.exchange;
  }

  // Norms, residuals, dropout, activation and the rotation of queries and keys: what they read and
  // write, in passes over a layer's values.
  double stream(double times) const {
    const double tp = number(l.tensor), width = number(m.width) / tp;
    const double d = number(m.head_width);
    const double taken = number(std::max<int64_t>(m.top_k, 1));
    double values = 6 * number(m.norms()) * width +
                    (m.gated ? 3 : 2) * taken * number(m.hidden) / tp +
                    3 * d * number(m.heads) / tp;
    if (m.experts > 0) values += 8 * taken * width;  // permutations of tokens
    const int kernels = 4 * static_cast<int>(m.norms());
    return stream_seconds(gpu, times * tokens * values * precision_.activation, kernels);
  }

  void tensor_exchange(int times, Part& part) const {
    const double one = all_gather_seconds(machine_, {l.tensor, 1}, tokens_bytes());
    part.tensor += times * one * (1 - machine_.tensor_overlap);
  }

  void experts_exchange(int times, Part& part) const {
    if (l.expert == 1) return;
    const double bytes = tokens_bytes() * number(m.top_k) / number(l.tensor);
    part.expert += times * all_to_all_seconds(machine_, {l.expert, l.tensor}, bytes);
  }

  const Model& m;
  const Layout& l;
  const Precision& precision_;
  const Machine& machine_;
  const Gpu& gpu;
  double tokens = number(l.micro_batch) * number(m.sequence) / number(l.context);
};

// The parts of a stage: the embedding, whose gradients come last, layers, and the head with the
// loss, a third of which is forward.
std::vector<Unit> units_of(const Model& m, const Layout& l, int64_t stage, double forward,
                           double backward, double head) {
  const RankParameters layer = parameters_of_layer(m, l), all = parameters_of_rank(m, l, stage);
  const double layers = number(m.layers / l.pipeline);
  std::vector<Unit> units(static_cast<size_t>(m.layers / l.pipeline),
                          {forward, backward, layer.shared, layer.experts});
  if (m.vocabulary == 0) return units;
  const bool first = stage == 0, last = stage == l.pipeline - 1;
  const double ends = all.shared - layers * layer.shared;
  const double at_head =
      !last    ? 0
      : !first ? ends
      : m.tied ? m.norm_parameters()
               : m.norm_parameters() + number(m.width) * number(m.vocabulary) / number(l.tensor);
  if (last) units.push_back({head / 3, 2 * head / 3, at_head});
  if (first) units.insert(units.begin(), {0, 0, ends - at_head});
  return units;
}

}  // namespace

Step step_of(const Model& m, const Layout& l, const Precision& precision, const Machine& machine) {
  const Costs costs(m, l, precision, machine);
  const double n = number(l.micro_batches(m)), pp = number(l.pipeline), v = number(l.interleave);
  const Part forward = costs.layer_forward(), backward = costs.layer_backward(),
             head = costs.head();
  const double layers = number(m.layers) / pp;
  Part usual;
  usual.add(forward, layers);
  usual.add(backward, layers);
  // Each micro-batch adds its gradients to their sums; the first one's become them.
  const auto on_parameters = [&](double bytes) {
    return stream_seconds(machine.gpu, bytes * parameters_of_rank(m, l, 0).all(), 0);
  };
  usual.compute += on_parameters(precision.converted() + precision.added(/*first=*/false));
  Part slowest = usual;
  slowest.add(head, 1);

  Step step;
  step.compute = n * slowest.compute - on_parameters(precision.added(/*first=*/false)) +
                 on_parameters(precision.added(/*first=*/true));
  step.tensor = n * slowest.tensor;
  step.context = n * slowest.context;
  step.expert = n * slowest.expert;
  if (l.pipeline > 1) {
    // Of 1F1B, pp - 1 turns of the other stages; with v stages on a rank, of a v-th of them each.
    // (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021.)
    const Ranks stages{l.pipeline, l.data * l.context * l.tensor};
    const double message =
        message_seconds(machine, stages, costs.tokens_bytes() / number(l.tensor));
    step.bubble = (pp - 1) / v * (usual.all() + 2 * message);
    step.pipeline = n * v * 2 * message * (1 - machine.pipeline_overlap);
  }

  for (const int64_t stage : {int64_t{0}, l.pipeline - 1}) {
    const std::vector<Unit> units =
        units_of(m, l, stage, forward.all(), backward.all(), head.all());
    step.data = std::max(step.data, data_seconds(units, l, precision, machine, n));
    if (l.pipeline == 1) break;
  }
  double shared = 0, experts = 0;
  for (const int64_t stage : {int64_t{0}, l.pipeline - 1}) {
    const RankParameters p = parameters_of_rank(m, l, stage);
    shared = std::max(shared, p.shared);
    experts = std::max(experts, p.experts);
  }
  const double copies = number(l.data * l.context);
  const double trained =
      l.zero >= 1 ? shared / copies + experts * number(l.expert) / copies : shared + experts;
  step.optimizer = stream_seconds(machine.gpu, precision.updated() * trained, 2);
  step.host = machine.gpu.step;
  return step;
}

double utilization(const Model& m, const Machine& machine, int64_t gpus, double seconds) {
  return m.flops() / (seconds * number(gpus) * machine.gpu.flops);
}

}  // namespace mytorch::plan
