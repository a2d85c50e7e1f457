import { expect, test } from 'vitest'
import { opfsFileStore } from '../../../src/data/file-store.ts'

test('a folder that another tab holds for 10 s is refused, and taken once it is free', async () => {
  const root = `lock-${Date.now()}`
  const folder = await opfsFileStore(root).folder('runs')
  let free = (): void => undefined
  const held = new Promise<void>((resolve) => {
    void navigator.locks.request(`tabring files ${root}/runs`, () => {
      resolve()
      return new Promise<void>((end) => {
        free = end
      })
    })
  })
  await held
  const beganMs = performance.now()
  await expect(folder.withLock!(async () => 'mine')).rejects.toMatchObject({
    code: 'file.unwritable',
    message: expect.stringContaining('another tab has held the folder "runs" for 10 s'),
  })
  expect(performance.now() - beganMs).toBeGreaterThan(9000)
  free()
  expect(await folder.withLock!(async () => 'mine')).toBe('mine')
}, 60_000)
