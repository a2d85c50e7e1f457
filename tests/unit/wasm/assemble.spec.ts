import { expect, test } from 'vitest'
import { assemble, FunctionCode } from '../../../src/wasm/assemble.ts'

test('assemble gives a module whose functions have their constants, parameters and loops', () => {
  const numbers = [0, 63, 64, -64, -65, 127, 128, 2 ** 31 - 1, -(2 ** 31)]
  const constants = new FunctionCode()
  const to = constants.parameter('i32')
  for (const [i, number] of numbers.entries()) {
    const address = constants.i32('i32.add', to, constants.i32Const(16 * i))
    constants.store(address, constants.v128('i32x4.splat', constants.i32Const(number)))
  }
  const fill = new FunctionCode()
  const end = fill.parameter('i32')
  const words = fill.v128Const([1, -2, 3, -4])
  fill.loop(end, 32, (at) => fill.store(at, words))

  const memory = new WebAssembly.Memory({ initial: 1 })
  const module = new WebAssembly.Module(assemble({ constants, fill }))
  const { exports } = new WebAssembly.Instance(module, { host: { memory } })
  const functions = exports as Record<'constants' | 'fill', (number: number) => void>
  const stored = new Int32Array(memory.buffer)
  functions.constants(1024)
  for (const [i, number] of numbers.entries())
    expect([...stored.subarray(256 + 4 * i, 260 + 4 * i)]).toEqual(Array(4).fill(number))
  functions.fill(64)
  const once = [1, -2, 3, -4, 0, 0, 0, 0]
  expect([...stored.subarray(0, 20)]).toEqual([...once, ...once, 0, 0, 0, 0])
})
