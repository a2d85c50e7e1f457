import { afterAll, expect } from 'vitest'
import { getDefaultDevice } from '../../src/graph/memory/runtime.ts'

// Unit specs share their worker's modules, so what one leaves behind reaches the next.
afterAll(() => {
  expect(getDefaultDevice(), 'this spec changed the default device; set it back').toEqual({
    type: 'webgpu',
    index: 0,
  })
})
