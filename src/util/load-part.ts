import { messageOf, TabringError } from './errors.ts'

/**
 * Returns a part of the program that comes when it is first needed.
 *
 * errors: `part.missing`, naming the part; what the part itself throws while it begins counts as that too.
 */
export async function loadPart<Part>(name: string, load: () => Promise<Part>): Promise<Part> {
  try {
    return await load()
  } catch (thrown) {
    throw new TabringError(
      'part.missing',
      `${name}: expected a part of this page from its server, got none (${messageOf(thrown)}). Check that the server runs, and reload the page.`,
      { cause: thrown },
    )
  }
}
