import { afterEach, expect, test, vi } from 'vitest'
import { openGpu } from '../../src/gpu/device.ts'
import { download } from '../../src/gpu/readback.ts'
import { bufferUsage } from '../../src/gpu/usage.ts'
import { losableDevices } from '../support/losable-devices.ts'

// A device that is lost: waits under way and later calls reject.

afterEach(() => vi.restoreAllMocks())

test('waits that would have no end reject when the device is lost, and so does all that follows', async () => {
  const lose = losableDevices()
  const gpu = await openGpu()
  const other = await openGpu()
  const endless = [gpu.wait(new Promise(() => undefined)), gpu.wait(new Promise(() => undefined))]
  const kept = other.wait(other.queue.onSubmittedWorkDone())
  const error = {
    code: 'gpu.lost',
    message: expect.stringMatching(/^device: lost \(the driver was reset\)\. Reopen it with /),
  }
  lose(gpu.device)
  expect(await gpu.lost).toBe('unknown: the driver was reset')
  for (const wait of endless) await expect(wait).rejects.toMatchObject(error)
  await expect(gpu.wait(Promise.resolve())).rejects.toMatchObject(error)
  await expect(gpu.wait(gpu.queue.onSubmittedWorkDone())).rejects.toMatchObject(error)
  expect(() => gpu.check()).toThrow('the driver was reset')
  await kept
  other.check()
  other.close()
})

test('a device that its owner closes is lost without an error, which only waits get', async () => {
  const gpu = await openGpu()
  const reading = download(gpu, gpu.createBuffer('numbers', 8, bufferUsage.COPY_SRC), 0, 8)
  gpu.close()
  await expect(reading).rejects.toMatchObject({
    code: 'gpu.lost',
    message: expect.stringMatching(
      /^device: destroyed before its work was done \(.*reopen it with runtimeOf/,
    ),
  })
  expect(await gpu.lost).toMatch(/^destroyed: /)
  gpu.check()
})
