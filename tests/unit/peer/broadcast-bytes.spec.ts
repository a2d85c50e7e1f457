import { afterEach, expect, test, vi } from 'vitest'
import { broadcastBytes } from '../../../src/peer/group/broadcast-bytes.ts'
import { destroyRings, ringOf } from '../../support/process-ring.ts'

afterEach(destroyRings)

const pieceBytes = 1000

test.each([0, 1, 999, 1000, 1001, 3003])(
  'broadcastBytes gives every rank %s bytes of one rank, and no others travel',
  async (sizeBytes) => {
    const groups = await ringOf(3)
    const own = new Uint8Array(sizeBytes).map((_, i) => i % 251)
    const sent = vi.spyOn(groups[0], 'broadcast')
    const received: (readonly number[])[] = []
    const ends = groups.map((group) =>
      broadcastBytes(group, {
        root: 1,
        sizeBytes,
        own: group.rank === 1 ? own : undefined,
        pieceBytes,
        onProgress: (...bytes) => group.rank === 2 && received.push(bytes),
      }),
    )
    for (const bytes of await Promise.all(ends)) expect(bytes).toEqual(own)
    const pieces = sent.mock.calls.map(([piece]) => piece.byteLength)
    expect(pieces.reduce((sum, size) => sum + size, 0)).toBe(sizeBytes)
    const done = pieces.map((_, i) => Math.min(sizeBytes, (i + 1) * pieceBytes))
    expect(received).toEqual(done.map((bytes) => [bytes, sizeBytes]))
  },
)

test.each([1, 2])('broadcastBytes gives the root of %s ranks a copy', async (size) => {
  const groups = await ringOf(size)
  const own = Uint8Array.of(1, 2, 3)
  const shared = { root: 0, sizeBytes: 3, pieceBytes }
  const [bytes] = await Promise.all(
    groups.map((group, rank) => broadcastBytes(group, { ...shared, own: rank ? undefined : own })),
  )
  own.fill(0)
  expect(bytes).toEqual(Uint8Array.of(1, 2, 3))
})

test('broadcastBytes allocates one piece only when a rank announces more than it sends', async () => {
  const groups = await ringOf(2)
  const sent = vi.spyOn(groups[1], 'broadcast').mockRejectedValue(new Error('nothing came'))
  const shared = { root: 0, sizeBytes: 2 ** 40, own: undefined, pieceBytes }
  await expect(broadcastBytes(groups[1], shared)).rejects.toThrow('nothing came')
  expect(sent.mock.calls.map(([piece]) => piece.byteLength)).toEqual([pieceBytes])
})

test('broadcastBytes passes its label and deadline to each piece', async () => {
  const [group] = await ringOf(2)
  const sent = vi.spyOn(group, 'broadcast').mockResolvedValue()
  const options = { label: 'the file', deadlineMs: 7 }
  const own = new Uint8Array(1500)
  await broadcastBytes(group, { root: 0, sizeBytes: 1500, own, pieceBytes }, options)
  expect(sent.mock.calls.map(([, root, given]) => [root, given])).toEqual([
    [0, options],
    [0, options],
  ])
})
