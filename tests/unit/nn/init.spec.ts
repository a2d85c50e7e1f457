import { expect, test, vi } from 'vitest'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import { Conv2d } from '../../../src/nn/convolution.ts'
import { Embedding } from '../../../src/nn/embedding.ts'
import { getRngState, manualSeed, setRngState } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'

/** Weight and bias of a layer that is the first one made under `seed`. */
async function drawnBy(seed: number, make: () => Linear | Conv2d) {
  manualSeed(seed)
  const { weight, bias } = make()
  return { weight: [...(await weight.read())], bias: [...(await bias!.read())] }
}

// PyTorch's fan-in: the elements of one output's weight, so channels of one group times kernel height and width.
test.each([
  ['Linear', 300, 300 * 200, () => new Linear(300, 200)],
  ['Conv2d', 12 * 3 * 5, 256 * 12 * 3 * 5, () => new Conv2d(12, 256, [3, 5])],
  ['Conv2d in groups', 6 * 9, 256 * 6 * 9, () => new Conv2d(12, 256, 3, { groups: 2 })],
] as const)(
  '%s begins uniform in ±1/sqrt(fan-in), with separate streams for weight and bias',
  async (_, fanIn, weights, make) => {
    const bound = 1 / Math.sqrt(fanIn)
    const { weight, bias } = await drawnBy(5, make)
    expect(weight.length).toBe(weights)
    for (const values of [weight, bias]) {
      const n = values.length
      const largest = Math.max(...values.map(Math.abs))
      expect(largest).toBeLessThanOrEqual(Math.fround(bound))
      // 200 draws all below 0.95 of the bound: one seed in 28,000.
      expect(largest).toBeGreaterThan(0.95 * bound)
      const mean = values.reduce((sum, x) => sum + x, 0) / n
      const variance = values.reduce((sum, x) => sum + (x - mean) ** 2, 0) / n
      // Five standard errors of n even draws in ±bound, whose variance is bound² / 3.
      expect(Math.abs(mean)).toBeLessThan(5 * bound * Math.sqrt(1 / 3 / n))
      expect(Math.abs(variance - bound ** 2 / 3)).toBeLessThan(
        5 * bound ** 2 * Math.sqrt(4 / 45 / n),
      )
    }
    // Of one stream they would begin with the same values: both are scaled by the same bound.
    expect(bias.filter((value, i) => value === weight[i])).toEqual([])
  },
)

/** What a word of the generator becomes under a bound of one half: its upper 24 bits. */
const ofWord = (word: number) => (word >>> 8) * 2 ** -24 - 0.5

test('seed 0 always gives these numbers', async () => {
  const { weight, bias } = await drawnBy(0, () => new Linear(4, 2))
  // Random123's published answer to a counter and a key of zeros begins the first stream.
  expect(weight.slice(0, 4)).toEqual([0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8].map(ofWord))
  expect({ weight: weight.slice(4), bias }).toMatchInlineSnapshot(`
    {
      "bias": [
        0.016679108142852783,
        0.4396580457687378,
      ],
      "weight": [
        0.4722411632537842,
        -0.137908935546875,
        0.19393086433410645,
        -0.4629059433937073,
      ],
    }
  `)
})

test('manualSeed restarts the streams; another seed and a second layer have other numbers', async () => {
  const make = () => new Linear(4, 2)
  const first = await drawnBy(3, make)
  const second = await make().weight.read()
  expect(await drawnBy(3, make)).toEqual(first)
  expect([...second]).not.toEqual(first.weight)
  expect((await drawnBy(4, make)).weight).not.toEqual(first.weight)
})

test('setRngState refuses what is no state, and changes nothing', () => {
  manualSeed(3)
  const state = getRngState()
  for (const name of Object.keys(state)) {
    for (const wrong of [undefined, null, Number.NaN, -1, 1.5, '1', Number.POSITIVE_INFINITY]) {
      const given = { ...state, seed: 4, [name]: wrong }
      expect(() => setRngState(given as never)).toThrow(
        new RegExp(`^setRngState: ${name} must be a whole number from 0 to 2`),
      )
      expect(getRngState()).toEqual(state)
    }
  }
})

test('setRngState names a number that is missing', () => {
  expect(() => setRngState({} as never)).toThrow(/^setRngState: seed must be .*, got undefined\./)
})

test('a parameter is drawn when it is first needed, and never where other contents are loaded before', async () => {
  const draw = vi.fn(() => Float32Array.of(1, 2))
  const [read, loaded] = [new Parameter([2], draw), new Parameter([2], draw)]
  loaded.assign(Float32Array.of(3, 4))
  expect([...(await loaded.read())]).toEqual([3, 4])
  expect(draw).not.toHaveBeenCalled()
  await read.read()
  expect([...(await read.read())]).toEqual([1, 2])
  expect(draw).toHaveBeenCalledTimes(1)
})

test('layers have the same parameters whichever is read first', async () => {
  const read = async (order: readonly number[]) => {
    manualSeed(3)
    const layers = [new Linear(3, 2), new Embedding(4, 2)]
    const weights: Float32Array[] = []
    for (const at of order) weights[at] = await layers[at].weight.read()
    return weights
  }
  expect(await read([1, 0])).toEqual(await read([0, 1]))
})
