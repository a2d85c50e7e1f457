import { afterAll, expect, test } from 'vitest'
import { bytePairTokenizer } from '../../src/data/byte-pairs.ts'
import { type DownloadProgress, download, forgetDownload } from '../../src/data/download.ts'
import { opfsFileStore } from '../../src/data/file-store.ts'

// In the browser: the origin private file system, and the tables of the byte-pair tokenizer.

const root = `test-${crypto.randomUUID()}`
const store = opfsFileStore(root)
afterAll(async () =>
  (await navigator.storage.getDirectory()).removeEntry(root, { recursive: true }),
)

test('a file is there whole or not at all; a folder can be cleared', async () => {
  const folder = await store.folder('one')
  await folder.write('a', new Blob(['first']))
  await folder.write('a', new Blob(['2']))
  expect(await (await folder.read('a'))?.text()).toBe('2')
  expect(await folder.read('b')).toBeUndefined()
  await folder.clear()
  expect(await folder.read('a')).toBeUndefined()
  expect(await (await store.folder('one')).read('a')).toBeUndefined()
})

test('a download is kept between visits and checked against its checksum', async () => {
  const url = URL.createObjectURL(new Blob([new Uint8Array(9_000_000).fill(7)]))
  const digest = await crypto.subtle.digest('SHA-256', new Uint8Array(9_000_000).fill(7))
  const sha256 = [...new Uint8Array(digest)].map((b) => b.toString(16).padStart(2, '0')).join('')
  const progress: DownloadProgress[] = []
  const file = await download(url, {
    store,
    sha256,
    onProgress: (now) => progress.push({ ...now }),
  })
  expect(file.size).toBe(9_000_000)
  expect(progress.at(-1)?.receivedBytes).toBe(9_000_000)
  URL.revokeObjectURL(url)
  // The address is gone, the file is not: a store opened again has it.
  const again = await download(url, { store: opfsFileStore(root), sha256 })
  expect(new Uint8Array(await again.slice(8_999_998).arrayBuffer())).toEqual(Uint8Array.of(7, 7))
  await forgetDownload(url, store)
  await expect(download(url, { store, retries: 0 })).rejects.toMatchObject({
    code: 'data.interrupted',
  })
})

test('byte pairs as GPT-2 numbers them', async () => {
  const tokenizer = await bytePairTokenizer()
  expect(tokenizer.vocabularySize).toBe(50257)
  // OpenAI's tiktoken gives these for r50k_base.
  expect([...tokenizer.encode('hello world')]).toEqual([31373, 995])
  expect([...tokenizer.encode('tiktoken is great!')]).toEqual([83, 1134, 30001, 318, 1049, 0])
  const text = 'Grüße, 世界 🌍\n'
  expect(tokenizer.decode(tokenizer.encode(text))).toBe(text)
  expect([...tokenizer.encode('<|endoftext|>', { allowedSpecial: 'all' })]).toEqual([50256])
})
