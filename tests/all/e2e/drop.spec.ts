import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { ensureBuilt } from '../../../node/build.ts'
import { servePages } from '../../../node/own-pages.ts'
import { type Served, serve } from '../../../node/serve.ts'
import type {} from '../../e2e/fixtures/drop-page.ts'
import golden from '../../golden/decode.json'
import { launchBrowser } from '../../support/launch-browser.ts'

// Folders and files of this machine, dropped onto a page as the browser's own drag and drop does it.

declare global {
  interface Window {
    refused?: boolean
  }
}

const fixture = 'tests/e2e/fixtures/drop.html'
const picture = (name: string) => {
  const found = golden.png.find((one) => one.name === name)!
  return { bytes: Buffer.from(found.file, 'base64'), rgb: Buffer.from(found.rgb, 'base64') }
}
const clear = picture('RGB with alpha, 8 bits')
const grey = picture('grey, 8 bits, interlaced')

let folder: string
let served: Served
let browser: Browser
let page: Page
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tabring-drop-'))
  served = await servePages(fixture)
  browser = await launchBrowser()
  const images = join(folder, 'images')
  await mkdir(join(images, 'dog', 'old'), { recursive: true })
  await mkdir(join(images, 'cat'))
  await writeFile(join(images, 'cat', 'b ä.png'), clear.bytes)
  await writeFile(join(images, 'cat', 'a.png'), grey.bytes)
  await writeFile(join(images, 'dog', 'old', '1.png'), grey.bytes)
  await writeFile(join(images, 'dog', 'notes.txt'), 'no image')
  await writeFile(join(images, 'readme.txt'), 'of no class')
  // More than Chromium lists at a time.
  await mkdir(join(folder, 'many', 'one'), { recursive: true })
  await Promise.all(
    Array.from({ length: 130 }, (_, i) => writeFile(join(folder, 'many', 'one', `${i}.txt`), 'x')),
  )
  await cp(join(images, 'cat'), join(folder, 'cat'), { recursive: true })
})
afterAll(async () => {
  await browser?.close()
  await served?.close()
  await rm(folder, { recursive: true, force: true })
})
beforeEach(async () => {
  page = await browser.newPage()
  await page.goto(`${served.localUrl}${fixture}`)
})

/** Drops files and folders onto the page and returns what it made of them. */
async function drop(...paths: string[]) {
  const session = await page.context().newCDPSession(page)
  const data = {
    items: [],
    files: paths.map((path) => join(folder, path)),
    dragOperationsMask: 1,
  }
  for (const type of ['dragEnter', 'dragOver', 'drop'] as const)
    await session.send('Input.dispatchDragEvent', { type, x: 50, y: 50, data })
  await page.waitForFunction('window.dropped')
  return page.evaluate(async () => {
    const { folder, ...rest } = await window.dropped!
    if ('refusal' in folder) return { ...rest, refusal: folder.refusal }
    // What crosses to Node is plain arrays.
    const batches = folder.batches.map(({ x, y, path }) => ({
      shape: [...(x as { shape: readonly number[] }).shape],
      bytes: Array.from((x as { data: Float32Array }).data, (value) => Math.round(value * 255)),
      y: [...(y as { data: Int32Array }).data],
      path: path as string[],
    }))
    return { ...rest, classes: folder.classes, batches }
  })
}

/** shape: [height, width, channels] -> [channels, height, width] */
const planes = (rgb: Buffer) =>
  [0, 1, 2].flatMap((channel) => [...rgb].filter((_, i) => i % 3 === channel))

test('a file that is dropped beside the places for it leaves the training page where it is', async () => {
  const pages = await serve({ root: await ensureBuilt(), port: 0 })
  try {
    await page.goto(`${pages.localUrl}?demo=digits`)
    await page.getByRole('status').filter({ hasText: 'Alone in the room' }).waitFor()
    // Headless browsers go nowhere by a drop; what they would go by is an event whose default nobody prevented.
    await page.evaluate(() => {
      addEventListener('dragover', (event) => {
        const { defaultPrevented, dataTransfer } = event
        window.refused = defaultPrevented && dataTransfer?.dropEffect === 'none'
      })
    })
    const session = await page.context().newCDPSession(page)
    const data = { items: [], files: [join(folder, 'images', 'readme.txt')], dragOperationsMask: 1 }
    for (const type of ['dragEnter', 'dragOver'] as const)
      await session.send('Input.dispatchDragEvent', { type, x: 300, y: 20, data })
    await page.waitForFunction('window.refused !== undefined')
    expect(await page.evaluate(() => window.refused)).toBe(true)
  } finally {
    await pages.close()
  }
})

test('a dropped folder is an image folder, whose worker reads the files', async () => {
  const got = await drop('images')
  expect(got.paths).toEqual([
    'cat/a.png',
    'cat/b ä.png',
    'dog/notes.txt',
    'dog/old/1.png',
    'readme.txt',
  ])
  expect(got.sizes['cat/b ä.png']).toBe(clear.bytes.length)
  expect(got).toMatchObject({
    classes: ['cat', 'dog'],
    batches: [
      {
        shape: [2, 3, 7, 11],
        bytes: [...planes(grey.rgb), ...planes(clear.rgb)],
        y: [0, 0],
        path: ['cat/a.png', 'cat/b ä.png'],
      },
      { shape: [1, 3, 7, 11], bytes: planes(grey.rgb), y: [1], path: ['dog/old/1.png'] },
    ],
  })
})

test('class folders and files dropped together keep their names', async () => {
  const got = await drop('cat', 'images/dog', 'images/readme.txt')
  expect(got.paths).toEqual([
    'cat/a.png',
    'cat/b ä.png',
    'dog/notes.txt',
    'dog/old/1.png',
    'readme.txt',
  ])
  expect(got).toMatchObject({ classes: ['cat', 'dog'] })
})

test('files alone are no image folder', async () => {
  const got = await drop('images/cat/a.png', 'images/readme.txt')
  expect(got.sizes).toEqual({ 'a.png': grey.bytes.length, 'readme.txt': 11 })
  expect(got).toMatchObject({
    refusal: expect.stringMatching(/ImageFolder: expected one folder per class.*no folder among 2/),
  })
})

test('all files of a folder of more than the browser lists at a time', async () => {
  const got = await drop('many')
  expect(got.paths).toEqual(Array.from({ length: 130 }, (_, i) => `one/${i}.txt`).sort())
})
