// Models whose weights and configuration are in files of Hugging Face's format.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/device.h"
#include "mytorch/dtype.h"
#include "mytorch/nn/module.h"

namespace mytorch::nn::models {

struct PretrainedArgs {
  ScalarType dtype = kFloat32;  // of the parameters; the files may have another one
  Device device = kCPU;
  bool strict = true;  // whether names without a counterpart are an error
};

struct TokenLossArgs {
  // Computes logits and loss in chunks of tokens (linear_cross_entropy): the logits of all tokens
  // never exist at once, and the loss is float32 in 16-bit models. The head's forward and hooks do
  // not run. If the head is split over ranks (nn::parallelize), each rank has its part of the
  // logits of all tokens.
  bool chunked = false;
};

// How the tensors of a model's files differ from its parameters.
struct WeightLayout {
  std::string prefix;                        // of the body's names, which files may lack or add
  std::vector<std::string> transposed = {};  // ends of names of weights that files store transposed
  std::vector<std::string> ignored = {};     // ends of names of tensors that the model computes
  std::vector<std::string> float32 = {};     // ends of names of buffers that 16 bits do not hold
};

// The base class of GPT-2, Llama, DeepSeek-V3 and BERT. A model is a folder with config.json and
// either model.safetensors or model.safetensors.index.json, which lists several such files.
//
//   auto model = nn::models::GPT2LMHeadModel::from_pretrained("gpt2");  // in evaluation mode
//   model.save_pretrained("copy");                                      // transformers reads it
class PretrainedModel : public Module {
 public:
  using Module::Module;

  // Copies the tensors of a folder, of an index file or of one safetensors file into the
  // parameters, one by one, and converts them to the parameters' types. A name may have the prefix
  // of the body ("transformer.", "model.", "bert.") or lack it; a tied weight may have either of
  // its names. Weights of heads that the module does not have are left out.
  //
  // Throws, before it changes a parameter: Error(kIo) for a missing or damaged file; Error(kValue),
  // listing the names, for missing and unexpected tensors, if `strict`, and for tensors that are
  // not of a floating-point type; Error(kShape) if shapes differ, listing them.
  LoadReport load_pretrained(const std::string& path, bool strict = true);

  // Writes config.json and model.safetensors into a folder, which is made if it is missing, with
  // Hugging Face's names. Writes several files and an index if the weights exceed
  // `max_shard_bytes`. Throws Error(kIo), and Error(kValue) for a model that is split over ranks.
  void save_pretrained(const std::string& folder, int64_t max_shard_bytes = 5'000'000'000) const;

 protected:
  virtual WeightLayout weight_layout() const = 0;
  virtual std::string config_json() const = 0;

  template <class M>
  static M loaded(M model, const std::string& path, const PretrainedArgs& options) {
    model.to(options.device, options.dtype);
    model.widen_buffers();
    model.load_pretrained(path, options.strict);
    model.eval();
    return model;
  }

 private:
  // Gives the buffers of WeightLayout::float32 that type.
  void widen_buffers();
};

}  // namespace mytorch::nn::models
