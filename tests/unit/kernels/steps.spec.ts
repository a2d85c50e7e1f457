import { describe, expect, test } from 'vitest'
import {
  applySteps,
  broadcastIndex,
  broadcastOffset,
  chainShape,
  joinSteps,
  type Step,
  scalarFunctions,
  stepsToWgsl,
} from '../../../src/kernels/steps.ts'

const biasRelu: Step[] = [
  { fn: 'add', args: [{ input: 0 }, { input: 1 }] },
  { fn: 'relu', args: [{ step: 0 }] },
]

describe('chains', () => {
  test('apply in order, and an empty chain is its first input', () => {
    expect(applySteps(biasRelu, [2, -3])).toBe(0)
    expect(applySteps(biasRelu, [2, 3])).toBe(5)
    expect(applySteps([], [7])).toBe(7)
  })

  test('become let lines and a result', () => {
    expect(stepsToWgsl(biasRelu, ['acc', 'bias[col]'])).toEqual({
      lines: ['let s0 = (acc + bias[col]);', 'let s1 = select(max(s0, 0.0), s0, is_nan(s0));'],
      result: 's1',
    })
    expect(stepsToWgsl([], ['acc'])).toEqual({ lines: [], result: 'acc' })
  })

  test('joined chains compute what the chains compute one after the other', () => {
    const scale: Step[] = [
      { fn: 'mul', args: [{ input: 0 }, { input: 1 }] },
      { fn: 'sub', args: [{ step: 0 }, { input: 2 }] },
    ]
    for (const at of [0, 1, 2]) {
      const joined = joinSteps(biasRelu, 2, scale, at)
      const first = applySteps(biasRelu, [4, 5])
      const others = [10, 20]
      const inputs = [...others.slice(0, at), first, ...others.slice(at)]
      expect(applySteps(joined, [4, 5, ...others])).toBe(applySteps(scale, inputs))
    }
  })

  test('numbers are written into the shader, and stay where chains join', () => {
    const steps: Step[] = [{ fn: 'mul', args: [{ input: 0 }, { constant: 0.5 }] }]
    expect(applySteps(steps, [3])).toBe(1.5)
    expect(stepsToWgsl(steps, ['v']).lines).toEqual(['let s0 = (v * 0.5f);'])
    expect(applySteps(joinSteps(biasRelu, 2, steps, 0), [4, 5])).toBe(4.5)
  })

  test('a function of several lines names them after its step', () => {
    const { lines, result } = stepsToWgsl([{ fn: 'sigmoid', args: [{ input: 0 }] }], ['v'], 'x')
    expect(result).toBe('x0')
    expect(lines[0]).toBe('let x0_t = exp(-abs(v));')
    expect(lines.join('\n')).not.toContain('$')
  })

  test('joining with an empty chain keeps the other', () => {
    expect(joinSteps([], 1, biasRelu, 0)).toEqual(biasRelu)
    expect(joinSteps(biasRelu, 2, [], 0)).toEqual(biasRelu)
  })

  test('every scalar function takes as many arguments as it says', () => {
    for (const [name, { arity, wgsl }] of Object.entries(scalarFunctions)) {
      const names = ['p', 'q', 'r'].slice(0, arity)
      const text = [wgsl(...names)].flat().join('\n')
      for (const argument of names) expect(text, name).toContain(argument)
      expect(text, name).not.toContain('undefined')
    }
  })
})

describe('broadcasting', () => {
  test('offsets follow NumPy', () => {
    const output = [2, 3, 4]
    for (let flat = 0; flat < 24; flat++) {
      const [i, j, k] = [Math.floor(flat / 12), Math.floor(flat / 4) % 3, flat % 4]
      expect(broadcastOffset(output, [2, 3, 4], flat)).toBe(flat)
      expect(broadcastOffset(output, [4], flat)).toBe(k)
      expect(broadcastOffset(output, [3, 1], flat)).toBe(j)
      expect(broadcastOffset(output, [2, 1, 4], flat)).toBe(i * 4 + k)
      expect(broadcastOffset(output, [], flat)).toBe(0)
    }
  })

  test('index expressions leave out broadcast axes', () => {
    expect(broadcastIndex([5, 6], [6], ['row', 'col'])).toBe('col')
    expect(broadcastIndex([5, 6], [5, 1], ['row', 'col'])).toBe('row')
    expect(broadcastIndex([5, 6], [5, 6], ['row', 'col'])).toBe('row * 6u + col')
    expect(broadcastIndex([5, 6], [], ['row', 'col'])).toBe('0u')
  })

  test('a clash names both shapes', () => {
    expect(chainShape('add', [[2, 1], [3]])).toEqual([2, 3])
    expect(() => chainShape('add', [[2, 4], [3]])).toThrow(/add: .*\[2, 4\] and \[3\]/)
  })
})
