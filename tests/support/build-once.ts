import { ensureBuilt } from '../../node/build.ts'

/** Builds the pages before the specs that serve them, of which two may begin at once. */
export default async function setup(): Promise<void> {
  await ensureBuilt()
}
