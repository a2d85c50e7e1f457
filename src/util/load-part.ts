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
      `${name}: could not load this part of the page from the server (${messageOf(thrown)}). Check that the server is running, and reload the page.`,
      { cause: thrown },
    )
  }
}
