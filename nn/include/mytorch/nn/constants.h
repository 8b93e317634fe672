// libtorch's constants for options. Options and operators take texts, so kSum is "sum".
#pragma once

namespace mytorch {

inline constexpr char kNone[] = "none";
inline constexpr char kMean[] = "mean";
inline constexpr char kSum[] = "sum";
inline constexpr char kBatchMean[] = "batchmean";
inline constexpr char kMax[] = "max";

inline constexpr char kZeros[] = "zeros";
inline constexpr char kConstant[] = "constant";
inline constexpr char kReflect[] = "reflect";
inline constexpr char kReplicate[] = "replicate";
inline constexpr char kCircular[] = "circular";
inline constexpr char kBorder[] = "border";
inline constexpr char kReflection[] = "reflection";
inline constexpr char kSame[] = "same";
inline constexpr char kValid[] = "valid";

inline constexpr char kNearest[] = "nearest";
inline constexpr char kNearestExact[] = "nearest-exact";
inline constexpr char kLinear[] = "linear";
inline constexpr char kBilinear[] = "bilinear";
inline constexpr char kBicubic[] = "bicubic";
inline constexpr char kTrilinear[] = "trilinear";
inline constexpr char kArea[] = "area";

inline constexpr char kFanIn[] = "fan_in";
inline constexpr char kFanOut[] = "fan_out";
inline constexpr char kReLU[] = "relu";
inline constexpr char kLeakyReLU[] = "leaky_relu";
inline constexpr char kSELU[] = "selu";
inline constexpr char kGELU[] = "gelu";
inline constexpr char kTanh[] = "tanh";
inline constexpr char kSigmoid[] = "sigmoid";

// For the reduction of operators: mse_loss(x, y, Reduction::Sum).
namespace Reduction {

inline constexpr char None[] = "none";
inline constexpr char Mean[] = "mean";
inline constexpr char Sum[] = "sum";

}  // namespace Reduction

}  // namespace mytorch
