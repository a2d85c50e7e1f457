import { softmax } from '../../src/graph/functions/activations.ts'
import type { RunOutputs } from '../../src/graph/plan/step-program.ts'
import { Gpt } from '../../src/nn/gpt.ts'
import type { Module } from '../../src/nn/module.ts'
import {
  answerOfPart,
  type ModelCopy,
  type ModelQuery,
  type QueryForward,
} from '../../src/trainer/settings/task.ts'
import { TabringError } from '../../src/util/errors.ts'
import { RandomStream } from '../../src/util/random.ts'
import { tensorType } from '../../src/util/shape.ts'
import { attentionMaps } from './attention-maps.ts'
import { blockSize, invalid, readPrompt, type TextData } from './tokens.ts'

/** Characters of one line. */
export const maxAtOnce = 256
const hottest = 5

const types = { tokens: tensorType([1, blockSize], 'i32') }

/** What is behind a prompt changes nothing before it, so any token will do there. */
function padded(prompt: readonly number[]): { tokens: Int32Array<ArrayBuffer> } {
  const tokens = new Int32Array(blockSize)
  tokens.set(prompt)
  return { tokens }
}

const gptOf = (model: Module): Gpt => {
  if (model instanceof Gpt) return model
  throw new TabringError(
    'graph.misuse',
    `text: expected a Gpt, got ${model.constructor.name}. Use the model that the task made.`,
  )
}

const nextOnes: QueryForward = (model, { tokens }) => ({
  probabilities: softmax(model.forward(tokens), 2),
})

/** Each character's probability to come behind a prompt of up to `blockSize` tokens. */
function lastOf({ probabilities }: RunOutputs, prompt: readonly number[], symbols: number) {
  const last = (prompt.length - 1) * symbols
  return (probabilities as Float32Array).slice(last, last + symbols)
}

const numberOf = (
  name: string,
  value: unknown,
  min: number,
  max: number,
  isWhole = true,
): number => {
  const number = Number(value)
  if (number >= min && number <= max && (!isWhole || Number.isInteger(number))) return number
  throw invalid(
    name,
    `${String(value)} is not ${isWhole ? 'a whole number' : 'a number'} from ${min} to ${max}`,
  )
}

/** The token that `share`, from 0 to 1, falls on. Temperature 0 takes the likeliest. */
export function drawToken(probabilities: Float32Array, temperature: number, share: number): number {
  const top = probabilities.reduce((best, p, token) => (p > probabilities[best] ? token : best), 0)
  if (temperature === 0) return top
  const weights = Array.from(probabilities, (p) => (p / probabilities[top]) ** (1 / temperature))
  let left = share * weights.reduce((sum, weight) => sum + weight, 0)
  const token = weights.findIndex((weight) => {
    left -= weight
    return left < 0
  })
  // Rounding may leave a rest behind the last one.
  return token < 0 ? top : token
}

/**
 * `{ prompt: 'Once', length: 56, temperature: 0.7, seed: 0 }`: `added`, `length` characters that one model writes after the prompt, and the
 * `step` after which it is that model, with `untrained: true` that before the first. Training continues meanwhile.
 */
export const sample: ModelQuery<TextData> = async ({ data, copied }, input) => {
  const given = (input ?? {}) as Record<string, unknown>
  const { symbols } = data
  const tokens = readPrompt(given.prompt, data)
  const length = numberOf('length', given.length, 1, maxAtOnce)
  const temperature = numberOf('temperature', given.temperature ?? 1, 0, hottest, false)
  const seed = numberOf('seed', given.seed ?? 0, 0, 2 ** 32 - 1)
  const first = Array.from(String(given.prompt)).length
  const write = async ({ step, program }: ModelCopy) => {
    const forward = await program('next', types, nextOnes)
    let added = ''
    let at = first
    await forward.repeat((outputs) => {
      if (outputs) {
        const share = new RandomStream(seed, at, 'general').unit()
        const seen = lastOf(outputs, tokens.slice(-blockSize), symbols.length)
        const token = drawToken(seen, temperature, share)
        tokens.push(token)
        added += symbols[token]
        at++
      }
      return at < first + length ? padded(tokens.slice(-blockSize)) : null
    })
    return { added, step }
  }
  return copied(write, { untrained: given.untrained === true })
}

/** `{ prompt }`: all characters by their probability to come next, the likeliest first. */
export const probabilities: ModelQuery<TextData> = async (context, input) => {
  const { data, program } = context
  const { symbols } = data
  const prompt = readPrompt((input as { prompt?: unknown } | null)?.prompt, data)
  const forward = await program('next', types, nextOnes)
  const all = lastOf(await forward.run(padded(prompt)), prompt, symbols.length)
  const order = Array.from(all.keys()).sort((a, b) => all[b] - all[a])
  return {
    characters: order.map((token) => symbols[token]),
    probabilities: Float32Array.from(order, (token) => all[token]),
  }
}

/**
 * `{ prompt }`: how much each of its last characters takes from those up to it.
 *
 * shape: `weights` [layers, heads, length, length], rows sum to 1; `characters` [length]
 */
export const attention: ModelQuery<TextData> = async ({ data, program }, input) => {
  const prompt = readPrompt((input as { prompt?: unknown } | null)?.prompt, data)
  const forward = await program('maps', types, (model, { tokens }) =>
    Object.fromEntries(
      attentionMaps(gptOf(model), tokens).map((map, layer) => [`layer${layer}`, map]),
    ),
  )
  const maps = Object.values(await forward.run(padded(prompt))) as Float32Array[]
  const { length } = prompt
  const heads = maps[0].length / blockSize ** 2
  const weights = new Float32Array(maps.length * heads * length * length)
  let end = 0
  for (const map of maps) {
    for (let head = 0; head < heads; head++) {
      for (let row = 0; row < length; row++) {
        const start = (head * blockSize + row) * blockSize
        weights.set(map.subarray(start, start + length), end)
        end += length
      }
    }
  }
  const characters = prompt.map((token) => data.symbols[token])
  return { weights, layers: maps.length, heads, characters }
}

/** Passages of a rank's part of a step that are shown. */
const maxOfPart = 4

/** The first passages of this rank's part of the newest step. */
export const part: ModelQuery<TextData> = async (context) =>
  answerOfPart(context, 'passages', (own) => {
    const { symbols, train } = context.data
    const passages = Array.from(own.subarray(0, maxOfPart), (index) => {
      const start = index * train.stride
      return Array.from(train.tokens.subarray(start, start + blockSize), (token) => symbols[token])
    })
    return { passages: passages.map((characters) => characters.join('')) }
  })

/** The characters that the text has, its first words, and how long it is. */
export const vocabulary: ModelQuery<TextData> = async ({
  data: { symbols, opening, train, test },
}) => ({
  symbols,
  opening,
  length: train.tokens.length + test.tokens.length,
})
