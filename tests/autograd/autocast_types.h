// The types of results under autocast to bfloat16 on CUDA in PyTorch 2.15, for first operands of
// float32, bfloat16, float64 and bfloat16, and other operands of float32, bfloat16, float64 and
// float32. `-`: not tried. Operands are shapes; `i` and `b` mark integers and bools.
#pragma once

namespace mytorch::testing {

inline constexpr const char* kAutocastTypes = R"(
matmul (4,4) (4,4) -> bfloat16 bfloat16 float64 bfloat16
mm (4,4) (4,4) -> bfloat16 bfloat16 float64 bfloat16
bmm (2,4,4) (2,4,4) -> bfloat16 bfloat16 float64 bfloat16
mv (4,4) (4,) -> bfloat16 bfloat16 float64 bfloat16
addmm (4,) (4,4) (4,4) -> bfloat16 bfloat16 float64 bfloat16
baddbmm (2,4,4) (2,4,4) (2,4,4) -> bfloat16 bfloat16 float64 bfloat16
linear (4,4) (4,4) (4,) -> bfloat16 bfloat16 float64 bfloat16
einsum "ij,jk->ik" [(4,4),(4,4)] -> bfloat16 bfloat16 float64 bfloat16
conv1d (1,3,8) (4,3,3) -> bfloat16 bfloat16 float64 bfloat16
conv2d (1,3,8,8) (4,3,3,3) (4,) -> bfloat16 bfloat16 float64 bfloat16
conv3d (1,3,4,4,4) (4,3,3,3,3) -> bfloat16 bfloat16 float64 bfloat16
conv_transpose1d (1,4,8) (4,3,3) -> bfloat16 bfloat16 float64 bfloat16
conv_transpose2d (1,4,8,8) (4,3,3,3) -> bfloat16 bfloat16 float64 bfloat16
conv_transpose3d (1,4,4,4,4) (4,3,3,3,3) -> bfloat16 bfloat16 float64 bfloat16
scaled_dot_product_attention (1,2,4,8) (1,2,4,8) (1,2,4,8) -> bfloat16 bfloat16 float64 bfloat16
acos (4,) -> float32 float32 float64 -
asin (4,) -> float32 float32 float64 -
cosh (4,) -> float32 float32 float64 -
exp (4,) -> float32 float32 float64 -
expm1 (4,) -> float32 float32 float64 -
log (4,) -> float32 float32 float64 -
log10 (4,) -> float32 float32 float64 -
log2 (4,) -> float32 float32 float64 -
log1p (4,) -> float32 float32 float64 -
reciprocal (4,) -> float32 float32 float64 -
rsqrt (4,) -> float32 float32 float64 -
sinh (4,) -> float32 float32 float64 -
tan (4,) -> float32 float32 float64 -
pow (4,) (4,) -> float32 float32 float64 float32
softplus (4,) -> float32 float32 float64 -
softmax (4,4) 1 -> float32 float32 float64 -
log_softmax (4,4) 1 -> float32 float32 float64 -
logsumexp (4,4) [1] -> float32 float32 float64 -
cumsum (4,4) 1 -> float32 float32 float64 -
prod (4,) -> float32 float32 float64 -
sum (4,) -> float32 float32 float64 -
linalg_vector_norm (4,) -> float32 float32 float64 -
layer_norm (4,4) [4] (4,) (4,) -> float32 float32 float64 float32
rms_norm (4,4) [4] (4,) -> float32 float32 float64 float32
group_norm (2,4,4) 2 (4,) (4,) -> float32 float32 float64 float32
mse_loss (4,) (4,) -> float32 float32 float64 float32
l1_loss (4,) (4,) -> float32 float32 float64 float32
smooth_l1_loss (4,) (4,) -> float32 float32 float64 float32
huber_loss (4,) (4,) -> float32 float32 float64 float32
kl_div (4,) (4,) -> float32 float32 float64 float32
binary_cross_entropy_with_logits (4,) (4,) -> float32 float32 float64 float32
nll_loss (2,4) i(2,) -> float32 float32 float64 -
upsample_nearest2d (1,1,4,4) [8,8] -> float32 float32 float64 -
cat [(4,),(4,)] -> float32 bfloat16 float64 float32
stack [(4,),(4,)] -> float32 bfloat16 float64 float32
dot (4,) (4,) -> float32 bfloat16 float64 float32
tensordot (4,4) (4,4) [0] [0] -> float32 bfloat16 float64 float32
atan2 (4,) (4,) -> float32 bfloat16 float64 float32
addcmul (4,) (4,) (4,) -> float32 bfloat16 float64 float32
addcdiv (4,) (4,) (4,) -> float32 bfloat16 float64 float32
scatter_add (4,) 0 i(4,) (4,) -> float32 bfloat16 float64 float32
add (4,) (4,) -> float32 bfloat16 float64 float32
sub (4,) (4,) -> float32 bfloat16 float64 float32
mul (4,) (4,) -> float32 bfloat16 float64 float32
div (4,) (4,) -> float32 bfloat16 float64 float32
maximum (4,) (4,) -> float32 bfloat16 float64 float32
square (4,) -> float32 float32 float64 -
sqrt (4,) -> float32 bfloat16 float64 -
sin (4,) -> float32 bfloat16 float64 -
cos (4,) -> float32 bfloat16 float64 -
tanh (4,) -> float32 bfloat16 float64 -
sigmoid (4,) -> float32 bfloat16 float64 -
erf (4,) -> float32 bfloat16 float64 -
exp2 (4,) -> float32 bfloat16 float64 -
relu (4,) -> float32 bfloat16 float64 -
gelu (4,) -> float32 bfloat16 float64 -
silu (4,) -> float32 bfloat16 float64 -
elu (4,) -> float32 bfloat16 float64 -
leaky_relu (4,) -> float32 bfloat16 float64 -
mean (4,) -> float32 bfloat16 float64 -
var (4,) -> float32 bfloat16 float64 -
std (4,) -> float32 bfloat16 float64 -
amax (4,) -> float32 bfloat16 float64 -
max (4,) -> float32 bfloat16 float64 -
argmax (4,) -> int64 int64 int64 -
clamp (4,) 0 1 -> float32 bfloat16 float64 -
max_pool2d (1,1,4,4) [2,2] -> float32 bfloat16 float64 -
avg_pool2d (1,1,4,4) [2,2] -> float32 bfloat16 float64 -
adaptive_avg_pool2d (1,1,4,4) [2,2] -> float32 bfloat16 float64 -
embedding (4,4) i(2,) -> float32 bfloat16 float64 -
index_select (4,4) 0 i(2,) -> float32 bfloat16 float64 -
gather (4,) 0 i(4,) -> float32 bfloat16 float64 -
transpose (4,4) 0 1 -> float32 bfloat16 float64 -
reshape (4,4) [16] -> float32 bfloat16 float64 -
flip (4,) [0] -> float32 bfloat16 float64 -
eq (4,) (4,) -> bool bool bool bool
lt (4,) (4,) -> bool bool bool bool
where b(4,) (4,) (4,) -> float32 bfloat16 float64 float32
lerp (4,) (4,) (4,) -> float32 bfloat16 float64 -
topk (4,) 2 -> float32 bfloat16 float64 -
sort (4,) -> float32 bfloat16 float64 -
outer (4,) (4,) -> float32 bfloat16 float64 float32
triu (4,4) -> float32 bfloat16 float64 -
)";

}  // namespace mytorch::testing
