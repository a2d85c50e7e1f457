import { expect, test } from 'vitest'
import { parsePage, readPages, sentencesOf, userPages, wordsIn } from '../../support/markdown.ts'

// Sentences are short, in tables too. Code and generated pages do not count.

const longest = 30
/** Of a page. */
const maxLongSentences = 1

const longSentences = (page: Parameters<typeof sentencesOf>[0]) =>
  sentencesOf(page).filter((sentence) => wordsIn(sentence) > longest)

test.each(
  [...userPages(), ...readPages('tests/README.md')].filter(({ isGenerated }) => !isGenerated),
)('sentences of $path', (page) => {
  const long = longSentences(page)
  for (const sentence of long) console.log(`${page.path}: ${wordsIn(sentence)} words: ${sentence}`)
  expect(long.length, long.join('\n')).toBeLessThanOrEqual(maxLongSentences)
})

test('words are counted by sentence, a code span as one', () => {
  const words = (count: number) => Array.from({ length: count }, () => 'word').join(' ')
  const text = [
    `# ${words(40)}`,
    `| ${words(40)} |`,
    `${words(30)}. ${words(31)}.`,
    `- ${words(20)} \`a b c\` [${words(10)}](a.md).`,
    `- ${words(29)} and one (more).`,
    '```text',
    words(40),
    '```',
  ]
  const long = longSentences(parsePage('a.md', text.join('\n')))
  expect(long.map(wordsIn)).toEqual([40, 31, 31, 32])
})
