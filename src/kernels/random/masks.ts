import { keyOfSeed, philox4x32, purposes } from '../../util/random.ts'
import philoxWgsl from './philox.wgsl?raw'

/**
 * Random masks as pure functions of (seed, step, layer, global sample, place in the sample).
 *
 * Seed, step and the sample number of this rank's first row are step scalars. Scalars are f32, so integers come as 16-bit halves,
 * lowest first: 4 of the seed, 2 of the step, 2 of the first sample.
 */
export interface RandomSlots {
  /** The first of the 8 slots. */
  readonly slot: number
}

/** Halves of each integer, in the order of their slots. */
export const randomHalves = { seed: 4, step: 2, sample: 2 } as const

/** What a mask draws with: the words of its key and counter that do not depend on the element. */
export interface MaskKey {
  readonly key: readonly [number, number]
  readonly step: number
  readonly firstSample: number
}

const joined = (low: number, high: number): number => (low + high * 0x10000) >>> 0

/** The key that a step's scalars hold. */
export function maskKeyOf(scalars: readonly number[], { slot }: RandomSlots): MaskKey {
  const word = (at: number) => joined(scalars[slot + at], scalars[slot + at + 1])
  return { key: [word(0), word(2)], step: word(4), firstSample: word(6) }
}

/** The 8 scalars of a seed, a step and a first sample, as tests give them. */
export function randomScalars(seed: number, step: number, firstSample: number): number[] {
  const [low, high] = keyOfSeed(seed)
  return [low, high, step, firstSample].flatMap((word) => [word & 0xffff, word >>> 16])
}

/** Word 3 of the counter: the purpose, which no other stream shares, and the layer above it. */
export const layerWord = (layer: number): number => ((layer << 8) | purposes.dropout) >>> 0

/** Maximum number of layers with different masks. */
export const maxLayers = 2 ** 24

/** Words below this, of 24 bits, are dropped. */
export const dropThreshold = (p: number): number => Math.round(p * 2 ** 24)

/**
 * WGSL of `mask_words(layer, sample, block) -> vec4<u32>`: 4 neighbouring random words of a sample of this rank.
 *
 * The step scalars are bound as `scalars`.
 */
export const maskWgsl = ({ slot }: RandomSlots): string => `${philoxWgsl}
fn scalar_word(at: u32) -> u32 {
  return u32(scalars[at]) | (u32(scalars[at + 1u]) << 16u);
}

fn mask_words(layer_word: u32, sample: u32, block: u32) -> vec4<u32> {
  let key = vec2<u32>(scalar_word(${slot}u), scalar_word(${slot + 2}u));
  let step = scalar_word(${slot + 4}u);
  let first_sample = scalar_word(${slot + 6}u);
  return philox(vec4<u32>(block, first_sample + sample, step, layer_word), key);
}
`

/** The same on the host: whether element `at` of a sample is kept. */
export function keeps(
  { key, step, firstSample }: MaskKey,
  layer: number,
  sample: number,
  at: number,
  threshold: number,
): boolean {
  const words = new Uint32Array(4)
  const global = (firstSample + sample) >>> 0
  philox4x32(Math.floor(at / 4), global, step, layerWord(layer), key[0], key[1], words)
  return words[at % 4] >>> 8 >= threshold
}
