// The files of models, tokenizers and training runs.
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "mytorch/mytorch.h"
#include "mytorch/nn/models/bert.h"
#include "mytorch/nn/models/deepseek.h"
#include "mytorch/nn/models/gpt2.h"
#include "mytorch/nn/models/llama.h"
#include "mytorch/text/tokenizer.h"
#include "tests/formats/formats.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch::testing {
namespace {

std::string golden(const std::string& path) { return read_file(TESTS "/" + path); }

// ---- tokenizers ----

// A tokenizer.json of one of the goldens.
std::string tokenizer_json(const std::string& name) {
  return nlohmann::json::parse(golden("text/goldens/" + name + ".json"))["tokenizer"].dump();
}

// Encodes and decodes a text. A tokenizer may refuse a text that it has no tokens for.
void use(const text::Tokenizer& tokenizer, const std::string& text) {
  text::Encoding encoding;
  try {
    encoding = tokenizer.encode(text);
  } catch (const Error& error) {
    require(error.code() == ErrorCode::kValue, std::string("refused a text: ") + error.what());
    return;
  }
  const size_t n = encoding.size();
  require(encoding.type_ids.size() == n && encoding.tokens.size() == n &&
              encoding.offsets.size() == n && encoding.attention_mask.size() == n &&
              encoding.special_tokens_mask.size() == n,
          "lists of different lengths");
  for (const text::Range& range : encoding.offsets) {
    require(range.begin <= range.end && range.end <= text.size(), "an offset outside of the text");
  }
  tokenizer.decode(encoding.ids);
  text::DecodeStream stream(tokenizer);
  for (const int64_t id : encoding.ids) stream.step(id);
  stream.finish();
}

Format tokenizers() {
  std::vector<std::string> samples;
  for (const char* name : {"bert", "gpt2", "llama2", "llama3", "t5", "xlm", "wordlevel", "ctc",
                           "split0", "split3", "bpe_prefix", "bpe_suffix", "byte_normalizer"}) {
    const std::string json = tokenizer_json(name);
    if (json != "null") samples.push_back(json);
  }
  return {"tokenizer.json", samples, 3000, [](const std::string& bytes) {
            const auto tokenizer = text::Tokenizer::from_json(bytes);
            use(tokenizer, "Hello, w\xc3\xb6rld 123!  \xf0\x9f\x98\x80 [MASK]</s>\n");
            for (const int64_t id : {int64_t{-1}, int64_t{0}, int64_t{5}, INT64_MAX}) {
              tokenizer.id_to_token(id);
            }
          }};
}

// Texts that are not UTF-8, or strange.
Format texts(const std::string& name) {
  const auto tokenizer = text::Tokenizer::from_json(tokenizer_json(name));
  return {"texts of " + name,
          {"Hello, w\xc3\xb6rld 123!", "\xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x91\xa8\xe2\x80\x8d\xf0",
           " \t\r\n\xc2\xa0x\xcc\x88\xcc\xb1 [CLS]<s></s><|endoftext|>",
           "'ll I'M aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 0123456789"},
          200,
          [tokenizer](const std::string& text) { use(tokenizer, text); }};
}

// ---- models ----

template <class Config>
Format config(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/config-" + name + ".json";
  const std::string sample = golden("nn/models/goldens/" + name + "/config.json");
  return {"config.json of " + name, {sample}, sample.size(), [path](const std::string& bytes) {
            write_file(path, bytes);
            const std::string json = Config::read(path).json();
            write_file(path, json);
            require(Config::read(path).json() == json, "written, it reads otherwise");
          }};
}

Format weights_index(const std::string& folder) {
  const std::string own = folder + "/llama";
  std::filesystem::copy(TESTS "/nn/models/goldens/llama", own);
  const std::string path = own + "/model.safetensors.index.json";
  const std::string sample = read_file(path);
  nn::models::LlamaForCausalLM model(nn::models::LlamaConfig::read(own));
  return {"model.safetensors.index.json",
          {sample},
          sample.size(),
          [path, model](const std::string& bytes) mutable {
            write_file(path, bytes);
            const nn::LoadReport report = model.load_pretrained(path);
            require(report.missing.empty() && report.unexpected.empty(), "strict, yet not equal");
          }};
}

// ---- training ----

Format checkpoint(const std::string& folder) {
  const std::string own = folder + "/run";
  struct Run {
    nn::Linear net{2, 3};
    nn::optim::Adam adam{net.parameters(), {.lr = 0.1}};
    nn::Checkpoint checkpoint;
    explicit Run(const std::string& directory) : checkpoint(directory) {
      checkpoint.add("net", net).add("adam", adam).add("generator", default_generator());
    }
  };
  const auto run = std::make_shared<Run>(own);
  run->net(ones({1, 2})).sum().backward();
  run->adam.step();
  const std::string path = run->checkpoint.save(1, {{"accuracy", "0.5"}});
  const std::string sample = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, sample.data(), sizeof(header));
  return {"checkpoint", {sample}, sizeof(header) + header, [path, run](const std::string& bytes) {
            write_file(path, bytes);
            const Tensor before = run->net.weight.detach().clone();
            try {
              run->checkpoint.load(path);
            } catch (const Error&) {
              require(equal(run->net.weight, before), "refused, but the model changed");
              throw;
            }
            run->net(ones({1, 2})).sum().backward();
            run->adam.step();
          }};
}

Format csv_log(const std::string& folder) {
  const std::string path = folder + "/log.csv";
  return {"CSV log",
          {"step,loss,accuracy\n0,2.5,0.25\n1,1e-3,0.75\n2,nan,inf\n", "step,loss\n0,1\n1,2"},
          60,
          [path](const std::string& bytes) {
            write_file(path, bytes);
            size_t rows = 0;
            bool first = true;
            for (const auto& [name, column] : nn::read_csv_log(path)) {
              require(first || column.size() == rows, "columns of different lengths");
              rows = column.size();
              first = false;
            }
            nn::CsvLog log(path, 1);
          }};
}

}  // namespace

std::vector<Format> model_formats(const std::string& folder) {
  std::vector<Format> all = {tokenizers(), weights_index(folder), checkpoint(folder),
                             csv_log(folder)};
  for (const char* name : {"bert", "gpt2", "llama3", "t5"}) all.push_back(texts(name));
  all.push_back(config<nn::models::BertConfig>(folder, "bert"));
  all.push_back(config<nn::models::GPT2Config>(folder, "gpt2"));
  all.push_back(config<nn::models::LlamaConfig>(folder, "llama"));
  all.push_back(config<nn::models::DeepseekV3Config>(folder, "deepseek"));
  return all;
}

}  // namespace mytorch::testing
