#include "plan/layout.h"

#include "absl/strings/str_cat.h"

namespace mytorch::plan {

const char* recompute_name(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return "none";
    case Recompute::kSelective:
      return "selective";
    case Recompute::kFull:
      return "full";
  }
  return "";
}

std::string Layout::text() const {
  return absl::StrCat("dp ", data, " tp ", tensor, " pp ", pipeline, "x", interleave, " cp ",
                      context, " ep ", expert, " zero ", zero, " micro ", micro_batch,
                      " recompute ", recompute_name(recompute));
}

std::string reason_against(const Model& m, const Layout& l) {
  for (const int64_t n :
       {l.data, l.tensor, l.pipeline, l.context, l.expert, l.micro_batch, l.interleave}) {
    if (n < 1) return "a size is below 1";
  }
  if (l.zero < 0 || l.zero > 3) return "ZeRO has stages 0 to 3";
  if (m.heads % l.tensor != 0) return "tp does not divide the heads";
  if (m.key_heads % l.tensor != 0 && l.tensor % m.key_heads != 0) {
    return "tp neither divides the heads of keys nor is a multiple of them";
  }
  if (m.hidden % l.tensor != 0) return "tp does not divide the hidden size";
  if (m.layers % (l.pipeline * l.interleave) != 0) return "pp does not divide the layers";
  if (l.interleave > 1 && l.pipeline == 1) return "one stage cannot be interleaved";
  if (m.sequence % (l.context > 1 ? 2 * l.context * l.tensor : l.tensor) != 0) {
    return "2 cp tp does not divide the sequence";
  }
  if (l.expert > 1 && (m.experts == 0 || m.experts % l.expert != 0)) {
    return "ep does not divide the experts";
  }
  if ((l.data * l.context) % l.expert != 0) return "ep does not divide dp cp";
  if (m.batch % (l.data * l.micro_batch) != 0)
    return "dp and the micro-batch do not divide the batch";
  if (l.interleave > 1 && l.micro_batches(m) % l.pipeline != 0) {
    return "interleaved stages need a multiple of pp micro-batches";
  }
  // Gradients and parameters would be exchanged for each of many micro-batches.
  if (l.zero > 1 && l.pipeline > 1) return "ZeRO 2 and 3 do not go with pp";
  return "";
}

}  // namespace mytorch::plan
