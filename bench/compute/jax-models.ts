import { lax, nn, numpy as np } from '@jax-js/jax'
import { type Batch, gptConfig, imageBatch, type StepName, textBatch } from './task.ts'

/** The models in jax-js, as its demos write theirs. An array is used up by the call that takes it, unless `.ref` keeps it. */

export type Leaves = Record<string, np.Array>

export interface JaxModel {
  inputs(batch: Batch): { data: Float32Array<ArrayBuffer>; shape: number[] }
  /** shape: [rows, classes] */
  logits(p: Leaves, x: np.Array): np.Array
}

const mlp: JaxModel = {
  inputs: ({ inputs }) => ({
    data: inputs as Float32Array<ArrayBuffer>,
    shape: [imageBatch, 784],
  }),
  logits(p, x) {
    const h = nn.relu(np.dot(x, p['0.weight']).add(p['0.bias']))
    return np.dot(h, p['2.weight']).add(p['2.bias'])
  },
}

const convolution = (p: Leaves, layer: string, x: np.Array): np.Array =>
  nn.relu(
    lax
      .convGeneralDilated(x, p[`${layer}.weight`], [1, 1], 'SAME')
      .add(p[`${layer}.bias`].reshape([1, -1, 1, 1])),
  )
const pooled = (x: np.Array): np.Array =>
  lax.reduceWindow(x, (window) => np.max(window), [2, 2], [2, 2])

const cnn: JaxModel = {
  inputs: ({ inputs }) => ({
    data: inputs as Float32Array<ArrayBuffer>,
    shape: [imageBatch, 1, 28, 28],
  }),
  logits(p, x) {
    const features = pooled(convolution(p, '3', pooled(convolution(p, '0', x))))
    return np.dot(features.reshape([imageBatch, 1568]), p['7.weight']).add(p['7.bias'])
  },
}

const { width, heads, layers, vocabSize, blockSize } = gptConfig

const linear = (p: Leaves, layer: string, x: np.Array): np.Array =>
  np.dot(x, p[`${layer}.weight`]).add(p[`${layer}.bias`])
const layerNorm = (p: Leaves, layer: string, x: np.Array): np.Array =>
  nn.standardize(x).mul(p[`${layer}.weight`]).add(p[`${layer}.bias`])

function attention(p: Leaves, layer: string, x: np.Array): np.Array {
  const [q, k, v] = np
    .split(linear(p, `${layer}.c_attn`, x), 3, -1)
    .map((part) => part.reshape([textBatch, blockSize, heads, width / heads]))
  const attended = nn.dotProductAttention(q, k, v, { isCausal: true })
  return linear(p, `${layer}.c_proj`, attended.reshape([textBatch, blockSize, width]))
}

const gpt: JaxModel = {
  inputs: ({ oneHotInputs }) => ({
    data: oneHotInputs,
    shape: [textBatch, blockSize, vocabSize],
  }),
  logits(p, tokens) {
    const table = p['transformer.wte.weight']
    // As a product: jax-js has no gradient of its gather.
    let x = np.dot(tokens, table.ref).add(p['transformer.wpe.weight'])
    for (let layer = 0; layer < layers; layer++) {
      const at = `transformer.h.${layer}`
      x = x.ref.add(attention(p, `${at}.attn`, layerNorm(p, `${at}.ln_1`, x)))
      const hidden = nn.gelu(linear(p, `${at}.mlp.c_fc`, layerNorm(p, `${at}.ln_2`, x.ref)), {
        approximate: true,
      })
      x = x.add(linear(p, `${at}.mlp.c_proj`, hidden))
    }
    const last = layerNorm(p, 'transformer.ln_f', x)
    return np.dot(last, np.transpose(table)).reshape([textBatch * blockSize, vocabSize])
  },
}

export const jaxModels: Readonly<Record<StepName, JaxModel>> = { mlp, cnn, gpt }
