import { expect, test } from 'vitest'
import { readSafetensors, writeSafetensors } from '../../../src/data/safetensors.ts'
import { load, type SavedState, save } from '../../../src/data/saved-tree.ts'
import { writeZip } from '../../../src/data/zip.ts'

const state: SavedState = {
  model: {
    '0.weight': { shape: [2, 3], data: Float32Array.of(1, -0, Number.NaN, 4, 5, 6) },
    '0.count': { shape: [], data: Int32Array.of(7) },
  },
  optimizer: { groups: [{ lr: 1e-3, betas: [0.9, 0.999], isLeft: false }], state: {} },
  order: Uint32Array.of(3, 1, 2),
  best: Number.NEGATIVE_INFINITY,
  none: null,
  zero: -0,
  name: 'run "1"',
}

test('a state comes back as it was, arrays in their kinds', () => {
  expect(load(save(state))).toEqual(state)
  expect(save(state)).toEqual(save(state))
})

test('any reader of safetensors finds the weights under their path', () => {
  const { tensors } = readSafetensors(save(state))
  expect(tensors.get('model.0.weight')).toMatchObject({ dtype: 'F32', shape: [2, 3] })
})

test('paths that would have the same key are kept apart', () => {
  const twins = { 'a.b': Float32Array.of(1), a: { b: Float32Array.of(2) } }
  expect(load(save(twins))).toEqual(twins)
})

test('what is not plain is refused by its path', () => {
  const bad = { model: { run: () => 1 } } as unknown as SavedState
  expect(() => save(bad)).toThrow(/model\.run: expected a plain value or an array, got function/)
  expect(() => save({ seen: new Map() } as unknown as SavedState)).toThrow(/seen: .*got a Map/)
  const surplus = [{ format: 'pt' }] as unknown as []
  expect(() => save({ a: 1 }, ...surplus)).toThrow(
    /^save: options must be left out: .* saveModel with \{ format: "pt" \}, or writeTorch,/,
  )
  expect(() => save({ a: { $tensor: 'x' } })).toThrow(/keys that do not start with "\$"/)
})

test('files of others are refused with what to do', () => {
  const plain = writeSafetensors([['w', { dtype: 'F32', shape: [1], data: Float32Array.of(1) }]])
  expect(() => load(plain, 'model.safetensors')).toThrow(
    /model\.safetensors: expected the entry "tabring", got none.*readSafetensors/,
  )
  expect(() => load(writeZip([['sd/data.pkl', Uint8Array.of(1)]]))).toThrow(
    'load: expected a safetensors file, got a ZIP archive (.zip, .npz or .pt). Read a .pt with readTorch or loadModel, and an .npz with readNpz.',
  )
  expect(() => load(new Uint8Array(Buffer.from('\x93NUMPY\x01\0', 'latin1')))).toThrow('readNpy.')
})
