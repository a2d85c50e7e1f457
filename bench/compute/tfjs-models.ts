import * as tf from '@tensorflow/tfjs'
import { type Batch, gptConfig, imageBatch, type StepName, textBatch } from './task.ts'

/** The models in TensorFlow.js, images as [batch, height, width, channels], which is the order its kernels take. */

export type Variables = Record<string, tf.Variable>

export interface TfjsModel {
  inputs(batch: Batch): tf.Tensor
  /** shape: [rows, classes] */
  logits(p: Variables, x: tf.Tensor): tf.Tensor2D
}

const dense = (p: Variables, layer: string, x: tf.Tensor): tf.Tensor =>
  x.matMul(p[`${layer}.weight`]).add(p[`${layer}.bias`])

const mlp: TfjsModel = {
  inputs: ({ inputs }) => tf.tensor2d(inputs, [imageBatch, 784]),
  logits: (p, x) => dense(p, '2', dense(p, '0', x).relu()) as tf.Tensor2D,
}

const convolution = (p: Variables, layer: string, x: tf.Tensor): tf.Tensor4D =>
  tf
    .conv2d(x as tf.Tensor4D, p[`${layer}.weight`] as tf.Tensor4D, 1, 'same')
    .add(p[`${layer}.bias`])
    .relu<tf.Tensor4D>()
const pooled = (x: tf.Tensor4D): tf.Tensor4D => tf.maxPool(x, 2, 2, 'valid')

const cnn: TfjsModel = {
  // One channel: [N, 1, 28, 28] and [N, 28, 28, 1] hold the same bytes.
  inputs: ({ inputs }) => tf.tensor4d(inputs, [imageBatch, 28, 28, 1]),
  logits(p, x) {
    const features = pooled(convolution(p, '3', pooled(convolution(p, '0', x))))
    return dense(p, '7', features.reshape([imageBatch, 1568])) as tf.Tensor2D
  },
}

const { width, heads, layers, blockSize, vocabSize } = gptConfig
const headWidth = width / heads
const rows = textBatch * blockSize

function layerNorm(p: Variables, layer: string, x: tf.Tensor): tf.Tensor {
  const { mean, variance } = tf.moments(x, -1, true)
  return x
    .sub(mean)
    .mul(variance.add(1e-5).rsqrt())
    .mul(p[`${layer}.weight`])
    .add(p[`${layer}.bias`])
}

const gelu = (x: tf.Tensor): tf.Tensor =>
  x.mul(
    x
      .add(x.square().mul(x).mul(0.044715))
      .mul(Math.sqrt(2 / Math.PI))
      .tanh()
      .add(1)
      .mul(0.5),
  )

function attention(p: Variables, layer: string, x: tf.Tensor, mask: tf.Tensor): tf.Tensor {
  const [q, k, v] = tf
    .split(dense(p, `${layer}.c_attn`, x), 3, -1)
    .map((part) => part.reshape([textBatch, blockSize, heads, headWidth]).transpose([0, 2, 1, 3]))
  const scores = tf.matMul(q, k, false, true).mul(1 / Math.sqrt(headWidth))
  const attended = tf.matMul(tf.softmax(scores.add(mask)), v)
  return dense(p, `${layer}.c_proj`, attended.transpose([0, 2, 1, 3]).reshape([rows, width]))
}

let causalMask: tf.Tensor | undefined
/** 0 where a key is seen, -1e9 where not. shape: [T, T] */
const mask = (): tf.Tensor => {
  causalMask ??= tf.keep(
    tf.tidy(() =>
      tf.linalg
        .bandPart(tf.ones([blockSize, blockSize]), -1, 0)
        .sub(1)
        .mul(1e9),
    ),
  )
  return causalMask
}

const gpt: TfjsModel = {
  inputs: ({ inputs }) => tf.tensor1d(inputs, 'int32'),
  logits(p, tokens) {
    const table = p['transformer.wte.weight']
    let x: tf.Tensor = tf
      .gather(table, tokens as tf.Tensor1D)
      .reshape([textBatch, blockSize, width])
      .add(p['transformer.wpe.weight'])
      .reshape([rows, width])
    for (let layer = 0; layer < layers; layer++) {
      const at = `transformer.h.${layer}`
      x = x.add(attention(p, `${at}.attn`, layerNorm(p, `${at}.ln_1`, x), mask()))
      const hidden = gelu(dense(p, `${at}.mlp.c_fc`, layerNorm(p, `${at}.ln_2`, x)))
      x = x.add(dense(p, `${at}.mlp.c_proj`, hidden))
    }
    const last = layerNorm(p, 'transformer.ln_f', x)
    return tf.matMul(last, table, false, true).reshape([rows, vocabSize])
  },
}

export const tfjsModels: Readonly<Record<StepName, TfjsModel>> = { mlp, cnn, gpt }
