#include "plan/memory.h"

#include <algorithm>

namespace mytorch::plan {
namespace {

// Tokens of a micro-batch on a rank of cp.
double tokens_of(const Model& m, const Layout& l) {
  return number(l.micro_batch) * number(m.sequence) / number(l.context);
}

// Of the rows whose logits a fused loss has at a time.
constexpr double kPartOfRows = 1.0 / 8;

// Heads of keys of a rank: one at least, so that ranks share them if there are fewer.
double key_heads_of(const Model& m, const Layout& l) {
  if (m.heads == 0) return 0;
  return std::max(1.0, number(m.key_heads) / number(l.tensor));
}

}  // namespace

RankParameters parameters_of_layer(const Model& m, const Layout& l) {
  const double tp = number(l.tensor), width = number(m.width), d = number(m.head_width);
  RankParameters p;
  // Products are divided; norms, the router, and the biases that are added to sums are not.
  double attention = width * d * (2 * number(m.heads) / tp + 2 * key_heads_of(m, l));
  if (m.biases && m.heads > 0)
    attention += d * (number(m.heads) / tp + 2 * key_heads_of(m, l)) + width;
  const double rows = (m.gated ? 2 : 1) * number(m.hidden) / tp;
  const double expert = width * (rows + number(m.hidden) / tp) + (m.biases ? rows + width : 0);
  p.shared = attention + number(m.norms()) * m.norm_parameters() + width * number(m.experts);
  (m.experts == 0 ? p.shared : p.experts) +=
      expert * (m.experts == 0 ? 1 : number(m.experts / l.expert));
  return p;
}

RankParameters parameters_of_rank(const Model& m, const Layout& l, int64_t stage) {
  const double width = number(m.width), layers = number(m.layers / l.pipeline);
  RankParameters p = parameters_of_layer(m, l);
  p.shared *= layers;
  p.experts *= layers;
  const bool first = stage == 0, last = stage == l.pipeline - 1;
  if (m.vocabulary == 0) return p;
  const double table = width * number(m.vocabulary) / number(l.tensor);
  if (first) p.shared += table + (m.positions ? width * number(m.sequence) : 0);
  if (last) p.shared += m.norm_parameters();
  if (last && (!m.tied || !first)) p.shared += table;  // a tied head is on the last stage, too
  return p;
}

double layer_activations(const Model& m, const Layout& l, const Precision& precision) {
  const double tokens = tokens_of(m, l), tp = number(l.tensor);
  const double width = number(m.width) / tp;  // along the sequence, in place of the features
  if (l.recompute == Recompute::kFull) return precision.activation * tokens * width;
  const double heads = number(m.heads) / tp, d = number(m.head_width);
  const double taken = number(std::max<int64_t>(m.top_k, 1));
  const double hidden = number(m.hidden) / tp;
  double kept = number(m.norms()) * width                   // the inputs of norms
                + d * (2 * heads + 2 * key_heads_of(m, l))  // queries, keys, values, and the result
                + taken * (m.gated ? 2 : 1) * hidden;       // the inputs of the activation
  // Tokens as experts get them, and their results, which the router's weights multiply.
  if (m.experts > 0) kept += 2 * taken * width;
  if (l.recompute == Recompute::kNone) {
    kept += number(m.norms()) * width + taken * hidden;  // the results of these, and activations'
  }
  return tokens * (precision.activation * kept + 4 * heads);  // and a logsumexp for each row
}

double micro_batches_in_flight(const Model& m, const Layout& l, int64_t stage) {
  const double n = number(l.micro_batches(m)), later = number(l.pipeline - stage);
  if (l.interleave == 1) return std::min(n, later);
  const double v = number(l.interleave);
  const double pieces = 2 * (later - 1) + (v - 1) * number(l.pipeline) + 1;
  return std::min(n, pieces / v);
}

Memory memory_of_stage(const Model& m, const Layout& l, const Precision& precision, const Gpu& gpu,
                       int64_t stage) {
  const RankParameters p = parameters_of_rank(m, l, stage);
  const double ranks = number(l.data * l.context), sharing = ranks / number(l.expert);
  const double shard = p.shared / ranks + p.experts / sharing;
  Memory memory;
  memory.parameters = precision.parameter * (l.zero >= 3 ? shard : p.all());
  memory.gradients = precision.gradient * (l.zero >= 2 ? shard : p.all());
  memory.optimizer = precision.optimizer * (l.zero >= 1 ? shard : p.all());
  const double layers = number(m.layers / l.pipeline);
  memory.activations =
      layers * layer_activations(m, l, precision) * micro_batches_in_flight(m, l, stage);
  const double tokens = tokens_of(m, l);
  if (l.recompute != Recompute::kNone) {  // one layer's activations, while its backward runs
    Layout plain = l;
    plain.recompute = Recompute::kNone;
    memory.buffers += layer_activations(m, plain, precision);
  }
  if (stage == l.pipeline - 1) {  // logits, and their gradient in float32
    const double logits = tokens * number(m.vocabulary) / number(l.tensor);
    memory.buffers += logits * (precision.activation + 4) * (m.fused_loss ? kPartOfRows : 1);
  }
  if (l.zero >= 3) {  // two layers, gathered, and the gradients of one
    const double layer = (p.all() / number(m.layers));
    memory.buffers += layer * (2 * precision.parameter + precision.gradient);
  }
  if (l.context > 1) {  // keys and values of this rank and of the next, and their gradients
    memory.buffers +=
        tokens * 2 * key_heads_of(m, l) * number(m.head_width) * (2 * precision.activation + 2 * 4);
  }
  memory.reserved = gpu.reserved;
  return memory;
}

Memory memory_of(const Model& m, const Layout& l, const Precision& precision, const Gpu& gpu) {
  Memory most = memory_of_stage(m, l, precision, gpu, 0);
  for (const int64_t stage : {std::min<int64_t>(1, l.pipeline - 1), l.pipeline - 1}) {
    const Memory other = memory_of_stage(m, l, precision, gpu, stage);
    if (other.total() > most.total()) most = other;
  }
  return most;
}

}  // namespace mytorch::plan
