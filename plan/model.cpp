#include "plan/model.h"

#include <algorithm>
#include <tuple>

#include "core/types/errors.h"
#include "plan/json.h"

namespace mytorch::plan {
namespace {

// A GPT as Megatron trains it: heads of width / heads, four times the width between the products.
Model gpt(const char* name, int64_t layers, int64_t width, int64_t heads, int64_t vocabulary,
          int64_t sequence, int64_t batch) {
  Model m;
  m.name = name;
  m.layers = layers;
  m.width = width;
  m.heads = m.key_heads = heads;
  m.head_width = width / heads;
  m.hidden = 4 * width;
  m.vocabulary = vocabulary;
  m.sequence = sequence;
  m.batch = batch;
  m.biases = m.positions = true;
  return m;
}

Model llama(const char* name, int64_t layers, int64_t width, int64_t heads, int64_t key_heads,
            int64_t hidden, int64_t vocabulary, int64_t sequence, int64_t batch) {
  Model m = gpt(name, layers, width, heads, vocabulary, sequence, batch);
  m.key_heads = key_heads;
  m.hidden = hidden;
  m.gated = true;
  m.biases = m.positions = false;
  return m;
}

Model mixture(Model m, int64_t experts, int64_t top_k) {
  m.experts = experts;
  m.top_k = top_k;
  return m;
}

Model read_config(const std::string& path) {
  const Json config = read_json(path);
  if (!config.is_object()) fail(ErrorCode::kValue, "[plan] ", path, " is no JSON object");
  const auto get = [&](std::initializer_list<const char*> names, int64_t missing) {
    for (const char* name : names) {
      const auto found = config.find(name);
      if (found == config.end() || found->is_null()) continue;
      if (!found->is_number_integer()) {
        fail(ErrorCode::kValue, "[plan] ", path, ": ", name, " is ", shown(*found),
             ": it must be an integer");
      }
      return found->get<int64_t>();
    }
    if (missing >= 0) return missing;
    fail(ErrorCode::kValue, "[plan] ", path, " has no ", *names.begin(),
         ": it is no config.json of GPT-2, Llama or Mixtral");
  };
  const bool is_gpt = config.contains("n_embd");
  Model m;
  m.name = path;
  m.layers = get({"num_hidden_layers", "n_layer"}, -1);
  m.width = get({"hidden_size", "n_embd"}, -1);
  m.heads = get({"num_attention_heads", "n_head"}, -1);
  m.key_heads = get({"num_key_value_heads"}, m.heads);
  m.head_width = get({"head_dim"}, m.heads > 0 ? m.width / m.heads : 0);
  const int64_t width = std::clamp<int64_t>(m.width, 0, int64_t{1} << 32);  // check() follows
  m.hidden = is_gpt ? get({"n_inner"}, 4 * width) : get({"intermediate_size"}, -1);
  m.vocabulary = get({"vocab_size"}, -1);
  m.sequence = get({"n_positions", "max_position_embeddings"}, 4096);
  m.experts = get({"num_local_experts", "num_experts"}, 0);
  m.top_k = get({"num_experts_per_tok"}, m.experts > 0 ? 2 : 0);
  m.batch = 1024;
  m.gated = !is_gpt;
  m.biases = m.positions = is_gpt;
  const auto tied = config.find("tie_word_embeddings");
  m.tied = tied == config.end() ? is_gpt : tied->is_boolean() && tied->get<bool>();
  check(m);
  for (const auto& [name, size] :
       {std::pair{"the number of heads", m.heads}, std::pair{"the vocabulary", m.vocabulary}}) {
    if (size == 0) fail(ErrorCode::kValue, "[plan] ", name, " of ", path, " is 0: give 1 to 2^32");
  }
  return m;
}

}  // namespace

double Model::attention_parameters() const {
  if (heads == 0) return 0;
  const double weights = number(width) * number(head_width) * number(2 * heads + 2 * key_heads);
  return weights +
         (biases ? number(head_width) * number(heads + 2 * key_heads) + number(width) : 0);
}
double Model::expert_parameters() const {
  const double rows = (gated ? 2 : 1) * number(hidden);
  return number(width) * (rows + number(hidden)) + (biases ? rows + number(width) : 0);
}
double Model::norm_parameters() const { return (biases ? 2 : 1) * number(width); }
double Model::layer_parameters() const {
  const double router = number(width) * number(experts);
  return attention_parameters() + number(std::max<int64_t>(experts, 1)) * expert_parameters() +
         router + number(norms()) * norm_parameters();
}
double Model::embedding_parameters() const {
  if (vocabulary == 0) return 0;
  return number(width) * (number(vocabulary) + (positions ? number(sequence) : 0));
}
double Model::head_parameters() const { return tied ? 0 : number(width) * number(vocabulary); }
double Model::parameters() const {
  return number(layers) * layer_parameters() + embedding_parameters() + head_parameters() +
         (vocabulary > 0 ? norm_parameters() : 0);
}

double Model::flops() const {
  const double tokens = number(batch) * number(sequence);
  const double feed =
      number(width) * number(hidden) * (gated ? 3 : 2) * number(std::max<int64_t>(top_k, 1));
  const double projections = number(width) * number(head_width) * number(2 * heads + 2 * key_heads);
  const double scores = 2 * number(sequence) * number(heads) * number(head_width);
  const double router = number(width) * number(experts);
  const double layer = projections + feed + scores + router;
  return 6 * tokens * (number(layers) * layer + number(width) * number(vocabulary));
}

const std::vector<Model>& known_models() {
  static const std::vector<Model> models = {
      gpt("gpt2", 12, 768, 12, 50257, 1024, 512),
      gpt("gpt2-xl", 48, 1600, 25, 50257, 1024, 512),
      gpt("gpt3-175b", 96, 12288, 96, 51200, 2048, 1536),
      gpt("gpt-1.7b", 24, 2048, 16, 131072, 4096, 192),
      gpt("gpt-7.1b", 30, 4096, 32, 131072, 4096, 192),
      gpt("gpt-16b", 32, 6144, 48, 131072, 4096, 192),
      gpt("gpt-32b", 48, 7168, 56, 131072, 4096, 192),
      gpt("gpt-70b", 84, 8192, 64, 131072, 4096, 384),
      gpt("gpt-119b", 92, 10240, 80, 131072, 4096, 768),
      gpt("gpt-177b", 96, 12288, 96, 131072, 4096, 1152),
      gpt("gpt-314b", 96, 16384, 128, 131072, 4096, 1536),
      gpt("gpt-462b", 112, 18432, 144, 131072, 4096, 3072),
      llama("llama2-7b", 32, 4096, 32, 32, 11008, 32000, 4096, 1024),
      llama("llama2-70b", 80, 8192, 64, 8, 28672, 32000, 4096, 1024),
      llama("llama3-8b", 32, 4096, 32, 8, 14336, 128256, 8192, 1024),
      llama("llama3-70b", 80, 8192, 64, 8, 28672, 128256, 8192, 1024),
      llama("llama3.1-405b", 126, 16384, 128, 8, 53248, 128256, 8192, 2048),
      mixture(llama("mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000, 4096, 1024), 8, 2),
      mixture(llama("mixtral-8x22b", 56, 6144, 48, 8, 16384, 32768, 4096, 1024), 8, 2),
  };
  return models;
}

Model find_model(const std::string& name) {
  if (name.size() > 5 && name.ends_with(".json")) return read_config(name);
  std::vector<std::string> names;
  for (const Model& model : known_models()) {
    if (model.name == name) return model;
    names.push_back(model.name);
  }
  fail(ErrorCode::kValue, "[plan] unknown model '", name, "': give a config.json, or one of ",
       absl::StrJoin(names, ", "));
}

void check(const Model& m) {
  const int64_t attention = m.heads == 0 ? 0 : 1;  // the least size of its parts
  const std::tuple<const char*, int64_t, int64_t> sizes[] = {
      {"the number of layers", m.layers, 1},
      {"the width", m.width, 1},
      {"the number of heads", m.heads, 0},
      {"the number of key heads", m.key_heads, attention},
      {"the head width", m.head_width, attention},
      {"the hidden size", m.hidden, 1},
      {"the vocabulary", m.vocabulary, 0},
      {"the sequence length", m.sequence, 1},
      {"the batch", m.batch, 1}};
  for (const auto& [name, size, least] : sizes) {
    if (size < least || size > (int64_t{1} << 32)) {
      fail(ErrorCode::kValue, "[plan] ", name, " of ", m.name, " is ", size, ": give 1 to 2^32");
    }
  }
  if (m.heads == 0 ? m.key_heads + m.head_width != 0 : m.heads % m.key_heads != 0) {
    fail(ErrorCode::kValue, "[plan] ", m.name, " has ", m.heads, " heads and ", m.key_heads,
         " of keys, which do not divide them");
  }
  if (m.experts < 0 || m.experts > (1 << 20) || m.top_k < 0 || m.top_k > m.experts ||
      (m.experts > 0 && m.top_k == 0)) {
    fail(ErrorCode::kValue, "[plan] ", m.name, " has ", m.experts,
         " experts, of which a token takes ", m.top_k);
  }
}

}  // namespace mytorch::plan
