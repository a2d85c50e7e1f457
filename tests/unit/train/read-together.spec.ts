import { afterEach, expect, test, vi } from 'vitest'
import { readTogether } from '../../../src/ddp/checkpoint/checkpoint.ts'
import { destroyRings, ringOf } from '../../support/process-ring.ts'

afterEach(destroyRings)

const label = 'the checkpoint'
const pieceBytes = 2 ** 26

/** How rank 1 ends, where rank 0 sends it `received` about the file that it has read. */
async function readFrom(received: object) {
  const groups = await ringOf(2)
  const sent = vi.spyOn(groups[1], 'broadcast').mockRejectedValue(new Error('nothing came'))
  const end = readTogether(groups[1], async () => undefined).catch((error: unknown) => error)
  await groups[0].allGatherBytes(new TextEncoder().encode(JSON.stringify(received)), { label })
  return { end: await end, madeRoomFor: sent.mock.calls.map(([{ byteLength }]) => byteLength) }
}

test.each(['1e12', '-8', '8.5', ' 8', '4294967297', '99999999999', 'x'])(
  'a rank that sends "%s" as the size of a file is named, and no memory is allocated',
  async (done) => {
    expect(await readFrom({ done })).toMatchObject({
      end: {
        code: 'peer.protocol',
        message: expect.stringContaining('the checkpoint: rank 0 sent'),
      },
      madeRoomFor: [],
    })
  },
)

test('a rank makes room for the bytes of a file that arrive, not for the size that another rank claims', async () => {
  expect((await readFrom({ done: '3000000000' })).madeRoomFor).toEqual([pieceBytes])
})

test("another rank's error is cut", async () => {
  const { end } = await readFrom({ code: 'data.missing', message: 'x'.repeat(5e6) })
  expect(end).toMatchObject({ code: 'data.missing' })
  expect(String(end).length).toBeLessThan(2100)
})

test('a file of several pieces is the same on all ranks', async () => {
  const groups = await ringOf(2)
  const file = new Uint8Array(pieceBytes + 6).map((_, i) => i % 251)
  const read = await Promise.all(groups.map((group) => readTogether(group, async () => file)))
  for (const bytes of read) expect(Buffer.compare(bytes!, file)).toBe(0)
}, 60_000)
