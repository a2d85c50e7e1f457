import { describe, expect, test } from 'vitest'
import { chooseVariant, variantKey } from '../../../src/kernels/choose.ts'
import { matmul, plain } from '../../../src/kernels/matmul/matmul.ts'
import type { KernelLimits, Op, OpCall } from '../../../src/kernels/op.ts'
import { reshape } from '../../../src/kernels/reshape/reshape.ts'
import { candidates, maxCandidates, type TuneTarget, tune } from '../../../src/kernels/tune.ts'
import { tensorType } from '../../../src/util/shape.ts'

const limits: KernelLimits = {
  maxInvocations: 256,
  workgroupMemoryBytes: 16_384,
  maxGroupsPerDimension: 65_535,
}

function product(m: number, k: number, n: number) {
  const inputs = [tensorType([m, k]), tensorType([k, n])]
  const attrs = plain('nn')
  return { inputs, outputs: matmul.infer(inputs, attrs), attrs }
}

const target = (call: ReturnType<typeof product>): TuneTarget => ({
  op: matmul as Op,
  call: call as OpCall,
})

describe('variantKey', () => {
  test('depends on op, types and attrs, in any order of keys', () => {
    const call = product(4, 5, 6)
    expect(variantKey(matmul, call)).toBe(
      'matmul f32[4,5] f32[5,6] {"epilogue":[],"form":"nn","rowSums":false}',
    )
    const turned = { ...call, attrs: { rowSums: false, form: 'nn' as const, epilogue: [] } }
    expect(variantKey(matmul, turned)).toBe(variantKey(matmul, call))
    expect(variantKey(matmul, product(4, 5, 7))).not.toBe(variantKey(matmul, call))
  })
})

describe('chooseVariant', () => {
  const call = product(64, 64, 64)

  test('takes the table, else the preference, else naive on request', () => {
    const key = variantKey(matmul, call)
    expect(chooseVariant(matmul, call, limits, { [key]: 'tiled-32x32' }).name).toBe('tiled-32x32')
    expect(chooseVariant(matmul, call, limits).name).toBe(matmul.preferred!(call, limits))
    expect(chooseVariant(matmul, call, limits, { [key]: 'tiled-32x32' }, true).name).toBe('naive')
  })

  test('passes over an entry that cannot run here', () => {
    const key = variantKey(matmul, call)
    const small = { ...limits, maxInvocations: 32 }
    const chosen = chooseVariant(matmul, call, small, { [key]: 'tiled-32x32' })
    expect(chosen.name).not.toBe('tiled-32x32')
    expect(chooseVariant(matmul, call, limits, { [key]: 'gone' }).name).toBe(
      matmul.preferred!(call, limits),
    )
  })

  test('without a preference takes the first that is not naive', () => {
    const op = { ...matmul, preferred: undefined }
    expect(chooseVariant(op, call, limits).name).toBe('direct-4x4')
    expect(chooseVariant(op, product(0, 3, 3), limits).name).toBe('naive')
  })
})

test.each([
  [[2048, 2048, 2048], 'tiled-128x128'],
  [[1024, 1024, 1024], 'tiled-128x64'],
  [[512, 512, 512], 'split-4-4x4'],
  [[256, 256, 256], 'split-16-4x4'],
  [[64, 784, 256], 'split-16-4x4'],
  [[64, 10, 256], 'direct-4x4'],
  [[256, 32, 1024], 'tiled-32x32'],
  // Tiles as tall as these would compute nothing but their edge.
  [[8, 64, 100_000], 'direct-4x4'],
  [[1, 784, 256], 'naive'],
] as const)('on a GPU, matmul of %o prefers %s', ([m, k, n], name) => {
  expect(matmul.preferred!(product(m, k, n), { ...limits, isSoftware: false })).toBe(name)
})

describe('tune', () => {
  test('times few candidates, the preferred one among them', () => {
    const call = product(512, 512, 512)
    const names = candidates(matmul, call, limits).map(({ name }) => name)
    expect(names.length).toBeLessThanOrEqual(maxCandidates)
    expect(new Set(names).size).toBe(names.length)
    expect(names[0]).toBe(matmul.preferred!(call, limits))
    expect(names).not.toContain('naive')
  })

  test('times one of each family first, then the winner and its kin', async () => {
    const wide = { ...limits, subgroupSizes: { smallest: 32, largest: 32 } }
    const call = product(256, 4096, 256)
    const first = candidates(matmul, call, wide).map(({ name }) => name)
    for (const family of ['direct', 'tiled', 'subgroup', 'split'])
      expect(first.some((name) => name.startsWith(family))).toBe(true)
    const timed: string[] = []
    const table = await tune({
      targets: [target(call)],
      limits: wide,
      async time({ dispatches }) {
        const { label } = dispatches[0]
        timed.push(label.split(' ').slice(2).join(' '))
        // The other tile of the family is faster still.
        return label.includes('tiled-64x64') ? 1 : label.includes('tiled') ? 2 : 3
      },
    })
    expect(table[variantKey(matmul, call)]).toBe('tiled-64x64')
    expect(timed).toHaveLength(8)
  })

  test('keeps the fastest, times equal calls once, and leaves calls without a choice out', async () => {
    const timed: string[] = []
    const call = product(64, 64, 64)
    const shape = { shape: [4096] }
    const view = { inputs: call.outputs, outputs: [tensorType([4096])], attrs: shape }
    const table = await tune({
      targets: [
        target(call),
        target(product(64, 64, 64)),
        { op: reshape as Op, call: view },
        target(product(0, 64, 64)),
      ],
      limits,
      async time({ dispatches }) {
        timed.push(dispatches[0].label)
        return dispatches[0].label.includes('direct-4x4') ? 1 : 2
      },
    })
    expect(table).toEqual({ [variantKey(matmul, call)]: 'direct-4x4' })
    expect(new Set(timed).size).toBe(timed.length)
  })

  test('remembers winners for one environment alone', async () => {
    const kept = new Map<string, string>()
    const store = {
      get: async (key: string) => kept.get(key),
      set: async (key: string, value: string) => void kept.set(key, value),
    }
    let count = 0
    const time = async () => ++count
    const run = (environment: string) =>
      tune({ targets: [target(product(64, 64, 64))], limits, time, store, environment })
    const first = await run('adapter A')
    const afterFirst = count
    expect(afterFirst).toBeGreaterThan(1)
    expect(await run('adapter A')).toEqual(first)
    expect(count).toBe(afterFirst)
    await run('adapter B')
    expect(count).toBe(2 * afterFirst)
  })
})
