import { softmax } from '../../src/graph/functions/activations.ts'
import { Gpt } from '../../src/nn/gpt.ts'
import type { Module } from '../../src/nn/module.ts'
import type { Look, LookContext } from '../../src/train/task.ts'
import { TabringError } from '../../src/util/errors.ts'
import { RandomStream } from '../../src/util/random.ts'
import { tensorType } from '../../src/util/shape.ts'
import { attentionMaps } from './attention-maps.ts'
import { blockSize, invalid, readPrompt, type TextData } from './tokens.ts'

/** Each character waits for a gap between two steps: the page asks again for more. */
export const mostAtOnce = 32
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
    `text: expected a Gpt, got ${model.constructor.name}. Look at the model that the task made.`,
  )
}

/** Returns what gives each character's probability to come next, for prompts of up to `blockSize` tokens. */
async function predictor({ program, data: { symbols } }: LookContext<TextData>) {
  const forward = await program('next', types, (model, { tokens }) => ({
    probabilities: softmax(model.forward(tokens), 2),
  }))
  return async (prompt: readonly number[]): Promise<Float32Array> => {
    const { probabilities } = await forward.run(padded(prompt))
    const last = (prompt.length - 1) * symbols.length
    return (probabilities as Float32Array).slice(last, last + symbols.length)
  }
}

const numberOf = (
  name: string,
  value: unknown,
  least: number,
  most: number,
  isWhole = true,
): number => {
  const number = Number(value)
  if (number >= least && number <= most && (!isWhole || Number.isInteger(number))) return number
  throw invalid(
    name,
    `${isWhole ? 'a whole number' : 'a number'} from ${least} to ${most}`,
    String(value),
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
 * `{ prompt: 'Once', length: 8, temperature: 0.7, seed: 0 }`: `added`, so many characters that the model writes behind the prompt.
 *
 * With the prompt and what was added as the next prompt it writes on; with the same model and seed, what one longer call would have given.
 */
export const sample: Look<TextData> = async (context, input) => {
  const given = (input ?? {}) as Record<string, unknown>
  const { symbols } = context.data
  const tokens = readPrompt(given.prompt, context.data)
  const length = numberOf('length', given.length, 1, mostAtOnce)
  const temperature = numberOf('temperature', given.temperature ?? 1, 0, hottest, false)
  const seed = numberOf('seed', given.seed ?? 0, 0, 2 ** 32 - 1)
  const next = await predictor(context)
  const first = Array.from(String(given.prompt)).length
  let added = ''
  for (let at = first; at < first + length; at++) {
    const share = new RandomStream(seed, at, 'general').unit()
    const token = drawToken(await next(tokens.slice(-blockSize)), temperature, share)
    tokens.push(token)
    added += symbols[token]
  }
  return { added }
}

/** `{ prompt }`: all characters by their probability to come next, the likeliest first. */
export const probabilities: Look<TextData> = async (context, input) => {
  const { symbols } = context.data
  const prompt = readPrompt((input as { prompt?: unknown } | null)?.prompt, context.data)
  const all = await (await predictor(context))(prompt)
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
export const attention: Look<TextData> = async ({ data, program }, input) => {
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

/** The characters that the text has, its first words, and how long it is. */
export const vocabulary: Look<TextData> = async ({ data: { symbols, opening, train, test } }) => ({
  symbols,
  opening,
  length: train.tokens.length + test.tokens.length,
})
