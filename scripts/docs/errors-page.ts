import { errorCodes } from '../../src/util/errors.ts'
import { markdownTable } from '../../src/util/markdown.ts'
import { madeBy } from './made-by.ts'

/** docs/reference/errors.md: every code with its cause and what to do. */
export const errorsPage = (): string =>
  [
    madeBy('src/util/errors.ts'),
    '',
    '# Errors',
    '',
    'An error of Tabring has a `code` that stays the same from version to version, and a message for people: `<where>: <expected>, got <actual>. <what to do>`. It is a `TabringError` or one of its classes; one about an argument of a wrong type, which JavaScript lets through where TypeScript would not, is an `ArgumentTypeError`: to `instanceof` both a `TypeError` and a `TabringError`.',
    '',
    markdownTable(
      ['code', 'cause', 'what to do'],
      Object.entries(errorCodes).map(([code, { cause, remedy }]) => [`\`${code}\``, cause, remedy]),
    ),
    '',
  ].join('\n')
