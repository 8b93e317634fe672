// The plans of known models.
#include "mytorch/nn/parallel/parallelize.h"

namespace mytorch::nn {

using enum ParallelStyle;

ParallelPlan gpt2_plan() {
  return {{"**.h.*.attn", kHeads},
          {"**.h.*.mlp.c_fc", kColumn},
          {"**.h.*.mlp.c_proj", kRow},
          {"**.wte", kVocabulary},
          {"**.lm_head", kVocabulary, /*optional=*/true},
          {"**.wpe", kSequence},
          {"**.drop", kSequence},
          {"**.h.*.ln_1", kSequence},
          {"**.h.*.attn.resid_dropout", kSequence},
          {"**.h.*.ln_2", kSequence},
          {"**.h.*.mlp.dropout", kSequence},
          {"**.ln_f", kSequence}};
}

ParallelPlan llama_plan() {
  return {{"**.layers.*.self_attn", kHeads},
          {"**.layers.*.mlp.gate_proj", kColumn},
          {"**.layers.*.mlp.up_proj", kColumn},
          {"**.layers.*.mlp.down_proj", kRow},
          {"**.embed_tokens", kVocabulary},
          {"**.lm_head", kVocabulary, /*optional=*/true},
          {"**.layers.*.input_layernorm", kSequence},
          {"**.layers.*.post_attention_layernorm", kSequence},
          {"**.norm", kSequence}};
}

ParallelPlan bert_plan() {
  return {{"**.encoder.layer.*.attention.self", kHeads},
          {"**.encoder.layer.*.attention.output.dense", kRow},
          {"**.encoder.layer.*.intermediate.dense", kColumn},
          {"**.encoder.layer.*.output.dense", kRow},
          {"**.embeddings.word_embeddings", kVocabulary}};
}

ParallelPlan transformer_plan(const std::string& layers) {
  const auto of = [&](const char* name) { return layers.empty() ? name : layers + "." + name; };
  return {{of("self_attn"), kHeads},
          {of("multihead_attn"), kHeads, /*optional=*/true},
          {of("linear1"), kColumn},
          {of("dropout"), kColumn},
          {of("linear2"), kRow},
          {of("norm1"), kSequence},
          {of("norm2"), kSequence},
          {of("norm3"), kSequence, /*optional=*/true},
          {of("dropout1"), kSequence},
          {of("dropout2"), kSequence},
          {of("dropout3"), kSequence, /*optional=*/true},
          {"**.norm", kSequence, /*optional=*/true}};
}

}  // namespace mytorch::nn
