import { expect, test } from 'vitest'
import {
  maxInLink,
  onGrid,
  pointsFromText,
  pointsToBytes,
  pointsToText,
} from '../../../demos/playground/given-points.ts'
import { meta } from '../../../demos/playground/meta.ts'
import {
  type Activation,
  activations,
  hiddenLayers,
  modelOf,
  partsOf,
} from '../../../demos/playground/networks.ts'
import { drawSplits, readPoints } from '../../../demos/playground/points.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { startTask } from '../../support/task-ranks.ts'

/** Points of a built-in shape as a person would have drawn them. */
function drawn(count: number): number[] {
  const { at, classes } = drawSplits('moons').train
  return Array.from({ length: count }, (_, point) => point % classes.length).flatMap((i) => [
    onGrid(at[2 * i]),
    onGrid(at[2 * i + 1]),
    classes[i],
  ])
}

test('points go through an address as they are, to the bits that ranks train on', () => {
  const corners = [-1, -1, 0, 1, 1, 1, -1, 1, 1, 1, -1, 0, onGrid(0), onGrid(0), 1]
  const points = [...corners, ...drawn(80)]
  const text = pointsToText(points)!
  expect(text).toMatch(/^[A-Za-z0-9_-]+$/)
  expect(text).toHaveLength(3 * 85)
  expect(pointsFromText(text)).toEqual(points)
  expect(readPoints(pointsToBytes(pointsFromText(text)))).toEqual(readPoints(pointsToBytes(points)))
  // No further from where they were drawn than the plane's pixels.
  for (const at of [-1, -0.31, 0, 0.5004, 1])
    expect(Math.abs(onGrid(at) - at)).toBeLessThan(1 / 254)
})

test('an address holds 600 points in less than 2,000 characters, and no more', () => {
  expect(pointsToText(drawn(maxInLink))!.length).toBeLessThanOrEqual(2000 - 200)
  expect(pointsToText(drawn(maxInLink + 1))).toBeNull()
})

test.each(['', 'AAA', 'A'.repeat(31), `${'A'.repeat(30)}+++`, 'g'.repeat(30), 'A'.repeat(1803)])(
  '%j is no points',
  (text) => {
    expect(() => pointsFromText(text)).toThrow(/^points in the address: .* not 10 to 600/)
  },
)

test.each(['relu-4', 'sigmoid-8-8', 'tanh-32-32'])(
  '%s: its hidden units, through the last layer, give its boundary',
  async (model) => {
    const config = { demo: 'playground', model, data: 'xor', steps: 3 } as const
    const { ranks, close } = await startTask(1, config, () => new ReferenceRuntime())
    const [{ trainer, end }] = ranks
    await end
    const side = 5
    const { layers } = await trainer.query('hidden', { side })
    const { probabilities } = await trainer.query('boundary', { side })
    const state = await trainer.stateDict()
    close()
    const { units } = partsOf(model)
    const all = layers as readonly Float32Array[]
    expect(all.map(({ length }) => length)).toEqual(units.map((count) => side ** 2 * count))
    const last = all.at(-1)!
    const width = units.at(-1)!
    const [weight, bias] = ['weight', 'bias'].map(
      (name) => state[`${2 * units.length}.${name}`].data,
    )
    for (let at = 0; at < side ** 2; at++) {
      const [zero, one] = [0, 1].map((label) =>
        Array.from(
          { length: width },
          (_, i) => last[at * width + i] * weight[label * width + i],
        ).reduce((sum, value) => sum + value, Number(bias[label])),
      )
      const wanted = 1 / (1 + Math.exp(zero - one))
      expect((probabilities as Float32Array)[at]).toBeCloseTo(wanted, 5)
    }
    const range = { relu: [0, 100], sigmoid: [0, 1], tanh: [-1, 1] }[partsOf(model).activation]
    for (const values of all) {
      expect(Math.min(...values)).toBeGreaterThanOrEqual(range[0])
      expect(Math.max(...values)).toBeLessThanOrEqual(range[1])
      expect(new Set(values).size).toBeGreaterThan(side)
    }
  },
)

test('names of models stand for their parts', () => {
  const all = (Object.keys(activations) as Activation[]).flatMap((activation) =>
    hiddenLayers.map((hidden) => ({ activation, hidden })),
  )
  expect(all.map(({ activation, hidden }) => modelOf(activation, hidden))).toEqual(
    Object.keys(meta.models),
  )
  for (const { activation, hidden } of all) {
    const name = modelOf(activation, hidden)
    expect(partsOf(name)).toMatchObject({ activation, hidden })
    expect(meta.models[name].words).toBe(
      `${activations[activation]}: 2–${hidden.replaceAll('-', '–')}–2`,
    )
  }
  expect(partsOf('tanh')).toEqual({ activation: 'tanh', hidden: '16-16', units: [16, 16] })
})
