/** A model, its optimizer, and data that it trains on. */
const training = `
    const model = new Linear(2, 2)
    const optimizer = new AdamW(model.parameters(), { lr: 0.01 })
    const scheduler = new StepLR(optimizer, 10)
    const points = { x: { shape: [8, 2], data: new Float32Array(16).fill(0.5) }, y: { shape: [8], data: new Int32Array(8) } }
    const testSet = new TensorDataset(points)
    const loader = new DataLoader(testSet, { batchSize: 4 })
    const types = { x: tensorType([4, 2]), y: tensorType([4], 'i32') }
    const step = await compile(({ x, y }) => {
      const loss = crossEntropy(model.forward(x), y)
      optimizer.zeroGrad()
      loss.backward()
      optimizer.step()
      return { loss }
    }, types)`

/** This process as the one rank of a group. */
const group = `
    await initProcessGroup({ links: new Map(), rank: 0, worldSize: 1 })`

/**
 * What the `ts` blocks of a page take as given: names of earlier blocks of the page, or of the reader's own program.
 *
 * They, and a block that is not a whole file, may use every name that the library exports without importing it.
 */
export const preambles: Readonly<Record<string, string>> = {
  'docs/guides/checkpoints.md': `${group}${training}
    const parts = { model, optimizer }
    const accuracy = 0.5
    const log = (differences: readonly string[]) => differences`,
  'docs/guides/data.md': `${training}
    const documents = ['one text', 'another']
    const mnist = Uint8Array.from(atob('UEsDBBQAAAAIAAAAIQBhYP21TwAAAIgAAAALABQAeF90cmFpbi5ucHkBABAAiAAAAAAAAABPAAAAAAAAAJvsF+obEMnIUMZQrZ6SWpxcpG6loF5Taqiuo6Cell9UUpSYF59flJIKEndLzClOBYoXZyQWpAL5GkY6CiCkqaNQq0Ae4GJgZGJmYWVjBwBQSwMEFAAAAAgAAAAhAHaVJ3ZKAAAAkAAAAAsAFAB5X3RyYWluLm5weQEAEACQAAAAAAAAAEoAAAAAAAAAm+wX6hsQychQxlCtnpJanFykbqWgbpNpoa6joJ6WX1RSlJgXn1+UkgoSd0vMKU4FihdnJBakAvkaRjqaOgq1ChQALnYGCGCG0gBQSwECFAMUAAAACAAAACEAYWD9tU8AAACIAAAACwAAAAAAAAAAAAAAgAEAAAAAeF90cmFpbi5ucHlQSwECFAMUAAAACAAAACEAdpUndkoAAACQAAAACwAAAAAAAAAAAAAAgAGMAAAAeV90cmFpbi5ucHlQSwUGAAAAAAIAAgByAAAAEwEAAAAA'), (one) => one.charCodeAt(0))
    const epoch = 0`,
  'docs/how-it-works/collectives.md': `${group}
    const model = new Linear(2, 2)`,
  'docs/reference/api.md': `
    const classifier = new Linear(2, 2)
    const testSet = new TensorDataset({ x: { shape: [3, 2], data: new Float32Array(6) }, y: { shape: [3], data: new Int32Array(3) } })
    const model = new Linear(2, 1)
    const houses = new TensorDataset({ rooms: { shape: [3, 2], data: new Float32Array(6) }, price: { shape: [3, 1], data: new Float32Array(3) } })`,
  'docs/reference/launching.md': `${training}
    const loss = 0.5`,
  'docs/reference/pytorch.md': `${group}${training}
    const ddp = new DistributedDataParallel(model)
    const micro = [1, 2].map((x) => ({ x: new Float32Array(8).fill(x), y: new Int32Array(4) }))
    const url = process.env['STORE_URL']!
    const worldSize = 1
    const mine = { name: 'a rank' }`,
}
