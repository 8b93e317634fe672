// libtorch's names of the modules behind its holders: LinearImpl is Linear.
#pragma once

#include "mytorch/nn/activation.h"
#include "mytorch/nn/adaptive_softmax.h"
#include "mytorch/nn/container.h"
#include "mytorch/nn/conv.h"
#include "mytorch/nn/dropout.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/loss.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/nn/padding.h"
#include "mytorch/nn/pooling.h"
#include "mytorch/nn/recurrent.h"
#include "mytorch/nn/rotary.h"
#include "mytorch/nn/transformer.h"
#include "mytorch/nn/unpooling.h"
#include "mytorch/nn/upsampling.h"

namespace mytorch::nn {

#define MYTORCH_IMPL(name) using name##Impl = name;
// clang-format off
MYTORCH_IMPL(ReLU) MYTORCH_IMPL(ReLU6) MYTORCH_IMPL(SELU) MYTORCH_IMPL(SiLU) MYTORCH_IMPL(Mish)
MYTORCH_IMPL(Tanh) MYTORCH_IMPL(Sigmoid) MYTORCH_IMPL(LogSigmoid) MYTORCH_IMPL(Softsign)
MYTORCH_IMPL(Hardsigmoid) MYTORCH_IMPL(Hardswish) MYTORCH_IMPL(LeakyReLU) MYTORCH_IMPL(PReLU)
MYTORCH_IMPL(ELU) MYTORCH_IMPL(CELU) MYTORCH_IMPL(GELU) MYTORCH_IMPL(Softplus)
MYTORCH_IMPL(Hardtanh) MYTORCH_IMPL(Tanhshrink) MYTORCH_IMPL(Hardshrink) MYTORCH_IMPL(Softshrink)
MYTORCH_IMPL(Threshold) MYTORCH_IMPL(GLU) MYTORCH_IMPL(RReLU) MYTORCH_IMPL(Softmax)
MYTORCH_IMPL(LogSoftmax) MYTORCH_IMPL(Softmin) MYTORCH_IMPL(Softmax2d) MYTORCH_IMPL(ModuleList)
MYTORCH_IMPL(ModuleDict) MYTORCH_IMPL(ParameterList) MYTORCH_IMPL(ParameterDict)
MYTORCH_IMPL(Sequential) MYTORCH_IMPL(Conv1d) MYTORCH_IMPL(Conv2d) MYTORCH_IMPL(Conv3d)
MYTORCH_IMPL(ConvTranspose1d) MYTORCH_IMPL(ConvTranspose2d) MYTORCH_IMPL(ConvTranspose3d)
MYTORCH_IMPL(Dropout) MYTORCH_IMPL(Dropout1d) MYTORCH_IMPL(Dropout2d) MYTORCH_IMPL(Dropout3d)
MYTORCH_IMPL(AlphaDropout) MYTORCH_IMPL(FeatureAlphaDropout) MYTORCH_IMPL(Linear)
MYTORCH_IMPL(Bilinear) MYTORCH_IMPL(Identity) MYTORCH_IMPL(Flatten) MYTORCH_IMPL(Unflatten)
MYTORCH_IMPL(Embedding) MYTORCH_IMPL(EmbeddingBag) MYTORCH_IMPL(MSELoss) MYTORCH_IMPL(L1Loss)
MYTORCH_IMPL(SmoothL1Loss) MYTORCH_IMPL(HuberLoss) MYTORCH_IMPL(PoissonNLLLoss)
MYTORCH_IMPL(GaussianNLLLoss) MYTORCH_IMPL(CrossEntropyLoss) MYTORCH_IMPL(NLLLoss)
MYTORCH_IMPL(BCELoss) MYTORCH_IMPL(BCEWithLogitsLoss) MYTORCH_IMPL(KLDivLoss)
MYTORCH_IMPL(MultiMarginLoss) MYTORCH_IMPL(MultiLabelMarginLoss)
MYTORCH_IMPL(MultiLabelSoftMarginLoss) MYTORCH_IMPL(SoftMarginLoss) MYTORCH_IMPL(HingeEmbeddingLoss)
MYTORCH_IMPL(MarginRankingLoss) MYTORCH_IMPL(CosineEmbeddingLoss) MYTORCH_IMPL(TripletMarginLoss)
MYTORCH_IMPL(CTCLoss) MYTORCH_IMPL(TripletMarginWithDistanceLoss)
MYTORCH_IMPL(AdaptiveLogSoftmaxWithLoss)
MYTORCH_IMPL(PairwiseDistance) MYTORCH_IMPL(CosineSimilarity) MYTORCH_IMPL(BatchNorm1d)
MYTORCH_IMPL(BatchNorm2d) MYTORCH_IMPL(BatchNorm3d) MYTORCH_IMPL(InstanceNorm1d)
MYTORCH_IMPL(InstanceNorm2d) MYTORCH_IMPL(InstanceNorm3d) MYTORCH_IMPL(LayerNorm)
MYTORCH_IMPL(RMSNorm) MYTORCH_IMPL(GroupNorm) MYTORCH_IMPL(LocalResponseNorm)
MYTORCH_IMPL(CrossMapLRN2d)
MYTORCH_IMPL(ZeroPad1d) MYTORCH_IMPL(ZeroPad2d) MYTORCH_IMPL(ZeroPad3d) MYTORCH_IMPL(ConstantPad1d)
MYTORCH_IMPL(ConstantPad2d) MYTORCH_IMPL(ConstantPad3d) MYTORCH_IMPL(ReflectionPad1d)
MYTORCH_IMPL(ReflectionPad2d) MYTORCH_IMPL(ReflectionPad3d) MYTORCH_IMPL(ReplicationPad1d)
MYTORCH_IMPL(ReplicationPad2d) MYTORCH_IMPL(ReplicationPad3d) MYTORCH_IMPL(CircularPad1d)
MYTORCH_IMPL(CircularPad2d) MYTORCH_IMPL(CircularPad3d) MYTORCH_IMPL(MaxPool1d)
MYTORCH_IMPL(MaxPool2d) MYTORCH_IMPL(MaxPool3d) MYTORCH_IMPL(AvgPool1d) MYTORCH_IMPL(AvgPool2d)
MYTORCH_IMPL(AvgPool3d) MYTORCH_IMPL(LPPool1d) MYTORCH_IMPL(LPPool2d) MYTORCH_IMPL(LPPool3d)
MYTORCH_IMPL(AdaptiveAvgPool1d) MYTORCH_IMPL(AdaptiveAvgPool2d) MYTORCH_IMPL(AdaptiveAvgPool3d)
MYTORCH_IMPL(AdaptiveMaxPool1d) MYTORCH_IMPL(AdaptiveMaxPool2d) MYTORCH_IMPL(AdaptiveMaxPool3d)
MYTORCH_IMPL(MaxUnpool1d) MYTORCH_IMPL(MaxUnpool2d) MYTORCH_IMPL(MaxUnpool3d)
MYTORCH_IMPL(FractionalMaxPool2d) MYTORCH_IMPL(FractionalMaxPool3d)
MYTORCH_IMPL(RNN) MYTORCH_IMPL(GRU) MYTORCH_IMPL(LSTM) MYTORCH_IMPL(RNNCell) MYTORCH_IMPL(GRUCell)
MYTORCH_IMPL(LSTMCell) MYTORCH_IMPL(MultiheadAttention)
MYTORCH_IMPL(TransformerEncoderLayer) MYTORCH_IMPL(TransformerEncoder) MYTORCH_IMPL(TransformerDecoderLayer)
MYTORCH_IMPL(TransformerDecoder) MYTORCH_IMPL(Transformer) MYTORCH_IMPL(Upsample)
MYTORCH_IMPL(PixelShuffle) MYTORCH_IMPL(PixelUnshuffle) MYTORCH_IMPL(ChannelShuffle)
MYTORCH_IMPL(Unfold) MYTORCH_IMPL(Fold)
MYTORCH_IMPL(Functional) MYTORCH_IMPL(RotaryEmbedding)
// clang-format on
#undef MYTORCH_IMPL

}  // namespace mytorch::nn
