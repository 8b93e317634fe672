#include "nn/models/rope_fields.h"

#include <cmath>
#include <string>

#include "core/types/errors.h"

namespace mytorch::nn::models {
namespace {

// YaRN's factor of scores, m times as strong.
double yarn_size(double factor, double m) {
  return factor <= 1 ? 1 : 1 + 0.1 * m * std::log(factor);
}

void read(ConfigFields fields, double& theta, RotaryScaling& scaling, int64_t length) {
  std::string type = "default";
  fields("rope_theta", theta);
  fields("type", type);
  fields("rope_type", type);
  if (type == "linear") {
    scaling.type = RotaryScalingType::kLinear;
  } else if (type == "llama3") {
    scaling.type = RotaryScalingType::kLlama3;
  } else if (type == "yarn") {
    scaling.type = RotaryScalingType::kYarn;
    scaling.original_max_position_embeddings = length;
  } else if (type != "default") {
    fields.fail_field(fields.has("rope_type") ? "rope_type" : "type",
                      ", which is not supported: only \"default\", \"linear\", \"llama3\" and "
                      "\"yarn\" are");
  }
  fields("factor", scaling.factor);
  fields("low_freq_factor", scaling.low_freq_factor);
  fields("high_freq_factor", scaling.high_freq_factor);
  fields("original_max_position_embeddings", scaling.original_max_position_embeddings);
  if (type != "yarn") return;
  fields("beta_fast", scaling.beta_fast);
  fields("beta_slow", scaling.beta_slow);
  fields.refuse_unless("truncate", true);
  double own = 0, &all = scaling.mscale_all_dim;
  fields("mscale", own);
  fields("mscale_all_dim", all);
  if (fields.has("attention_factor")) {
    fields("attention_factor", scaling.attention_factor.emplace());
  } else if (own != 0 && all != 0) {
    scaling.attention_factor = yarn_size(scaling.factor, own) / yarn_size(scaling.factor, all);
    if (!(*scaling.attention_factor > 0) || std::isinf(*scaling.attention_factor)) {
      fields.fail_field("mscale", ", which with factor and mscale_all_dim gives no positive size");
    }
  }
}

}  // namespace

void visit_rope(const char* what, ConfigFields& fields, double& theta, RotaryScaling& scaling,
                int64_t length) {
  fields("rope_theta", theta);
  if (fields.reading()) {
    // transformers 5 has one object, earlier versions have a number and an object.
    for (const char* name : {"rope_scaling", "rope_parameters"}) {
      if (fields.has(name)) read(fields.inside(name), theta, scaling, length);
    }
    return;
  }
  const RotaryScalingType type = scaling.type;
  if (type == RotaryScalingType::kNone) return;
  if (type == RotaryScalingType::kNTK) {
    fail(ErrorCode::kUnsupported, "[", what,
         "] files have no name for the rope_scaling \"ntk\": use \"linear\", \"llama3\" or "
         "\"yarn\"");
  }
  ConfigFields inside = ConfigFields::write();
  std::string name = type == RotaryScalingType::kLinear   ? "linear"
                     : type == RotaryScalingType::kLlama3 ? "llama3"
                                                          : "yarn";
  inside("rope_type", name);
  inside("factor", scaling.factor);
  if (type == RotaryScalingType::kLlama3) {
    inside("low_freq_factor", scaling.low_freq_factor);
    inside("high_freq_factor", scaling.high_freq_factor);
  }
  if (type == RotaryScalingType::kYarn) {
    inside("beta_fast", scaling.beta_fast);
    inside("beta_slow", scaling.beta_slow);
    if (scaling.attention_factor.has_value()) {
      inside("attention_factor", *scaling.attention_factor);
    }
    if (scaling.mscale_all_dim != 0) inside("mscale_all_dim", scaling.mscale_all_dim);
  }
  if (type != RotaryScalingType::kLinear) {
    inside("original_max_position_embeddings", scaling.original_max_position_embeddings);
  }
  fields.write_inside("rope_scaling", inside);
}

}  // namespace mytorch::nn::models
