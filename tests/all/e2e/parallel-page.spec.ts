import { readFile } from 'node:fs/promises'
import type { Page } from 'playwright'
import { expect, it } from 'vitest'
import { readSafetensors } from '../../../src/data/safetensors.ts'
import { button, see } from '../../support/page-driver.ts'
import { driveRooms } from '../../support/page-rooms.ts'

// The page trains a model that is divided over two tabs.

const { openRoom, picture } = driveRooms()

it('two tabs train a sharded model to the bits of a whole one, and each can download it', {
  timeout: 240_000,
}, async () => {
  const query = '?epochs=1&steps=24&seed=3'
  const whole = await openRoom(2, query)
  await button(whole[0], 'Start').click()
  await Promise.all(whole.map((page) => see(page, 'Finished', 90_000)))
  const hashOf = (page: Page) => page.getByTestId('param-hash').textContent()
  const expected = await hashOf(whole[0])

  const pages = await openRoom(2, `${query}&parallel=fsdp`)
  await button(pages[0], 'Start').click()
  await Promise.all(pages.map((page) => see(page, 'Finished', 110_000)))
  for (const page of pages) expect(await hashOf(page)).toBe(expected)
  await picture(pages[0], 'sharded')

  const downloaded = pages[1].waitForEvent('download')
  await pages[1].getByRole('button', { name: 'Download weights' }).click()
  const { tensors } = readSafetensors(
    new Uint8Array(await readFile(await (await downloaded).path())),
  )
  expect([...tensors].map(([key, { shape }]) => [key, shape])).toEqual([
    ['0.weight', [256, 784]],
    ['0.bias', [256]],
    ['2.weight', [10, 256]],
    ['2.bias', [10]],
  ])
})

it('two tabs train a pipeline, pause in it, and each has the whole at the end', {
  timeout: 240_000,
}, async () => {
  const pages = await openRoom(2, '?epochs=1&steps=40&seed=3&parallel=pp=2&maxStepsPerSec=8')
  await button(pages[0], 'Start').click()
  await button(pages[0], 'Pause').click()
  await Promise.all(pages.map((page) => see(page, /^Paused/, 60_000)))
  await button(pages[0], 'Resume').click()
  await Promise.all(pages.map((page) => see(page, 'Finished', 110_000)))
  const hashes = await Promise.all(
    pages.map((page) => page.getByTestId('param-hash').textContent()),
  )
  expect(hashes[1]).toBe(hashes[0])
  await picture(pages[0], 'pipeline')
  const downloaded = pages[0].waitForEvent('download')
  await pages[0].getByRole('button', { name: 'Download weights' }).click()
  const { tensors } = readSafetensors(
    new Uint8Array(await readFile(await (await downloaded).path())),
  )
  expect([...tensors.keys()]).toEqual(['0.weight', '0.bias', '2.weight', '2.bias'])
})
