import { afterEach, expect, test, vi } from 'vitest'
import { type AdapterFacts, Gpu } from '../../../src/gpu/device.ts'

afterEach(() => vi.unstubAllGlobals())

/** A device in a browser that notices at the third submit from now that work is done. */
function workOnDevice(userAgent: string) {
  vi.stubGlobal('navigator', { userAgent })
  let submits = 0
  let noticed!: () => void
  const work = new Promise<void>((resolve) => {
    noticed = resolve
  })
  const queue = { submit: () => ++submits === 3 && noticed() }
  const lost = new Promise(() => undefined)
  const device = { queue, lost, addEventListener: () => undefined } as unknown as GPUDevice
  return {
    gpu: new Gpu(device, {} as AdapterFacts),
    work,
    notice: noticed,
    submits: () => submits,
  }
}

const tick = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

test('wait submits nothing again and again in Firefox, until the work is done', async () => {
  const { gpu, work, submits } = workOnDevice('Mozilla/5.0 (X11; Linux) Firefox/153.0')
  await gpu.wait(work)
  expect(submits()).toBe(3)
  await tick(20)
  expect(submits()).toBe(3)
})

test('wait submits nothing more in Firefox when the work fails', async () => {
  const { gpu, submits } = workOnDevice('Mozilla/5.0 (X11; Linux) Firefox/153.0')
  await expect(gpu.wait(Promise.reject(new Error('lost')))).rejects.toThrow('lost')
  const before = submits()
  await tick(20)
  expect(submits()).toBe(before)
})

test('wait submits nothing in other browsers', async () => {
  const { gpu, work, notice, submits } = workOnDevice('Mozilla/5.0 (X11; Linux) Chrome/156.0.0.0')
  setTimeout(notice, 20)
  await gpu.wait(work)
  expect(submits()).toBe(0)
})
