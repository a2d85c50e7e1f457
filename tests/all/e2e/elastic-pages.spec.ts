import { expect, test } from 'vitest'
import { button, hashOf, see } from '../../support/page-driver.ts'
import { driveRooms } from '../../support/page-rooms.ts'

// A room trains on when tabs close, crash, stop answering and come.

const { openRoom, openTab } = driveRooms()

test('three tabs train on when one is closed', { timeout: 240_000 }, async () => {
  const pages = await openRoom(3, '?steps=200&epochs=1&maxStepsPerSec=20&elastic=true')
  await button(pages[0], 'Start').click()
  const step = async () =>
    Number.parseInt((await pages[0].locator('.progress-words').textContent()) ?? '0', 10)
  await expect.poll(step, { timeout: 60_000 }).toBeGreaterThan(60)
  await pages[1].close()
  const beganMs = Date.now()
  await Promise.all([0, 2].map((i) => see(pages[i], 'Finished', 120_000)))
  console.log(Date.now() - beganMs)
  expect(await hashOf(pages[0])).toBe(await hashOf(pages[2]))
  expect(openTab).toBeDefined()
})
