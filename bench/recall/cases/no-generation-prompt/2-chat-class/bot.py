import asyncio
import os

from assistant import Assistant
from telegram import Update
from telegram.ext import Application, CommandHandler, ContextTypes, MessageHandler, filters

bot = Assistant(os.environ["ADAPTER"], system="You help people to plan hikes in the Alps.")
turn = asyncio.Lock()


async def new(update: Update, context: ContextTypes.DEFAULT_TYPE):
    async with turn:
        bot.reset()
    await update.message.reply_text("New conversation.")


async def on_text(update: Update, context: ContextTypes.DEFAULT_TYPE):
    async with turn:
        reply = await asyncio.to_thread(bot.say, update.message.text)
    await update.message.reply_text(reply)


def main():
    owner = filters.User(user_id=int(os.environ["OWNER_ID"]))
    app = Application.builder().token(os.environ["TELEGRAM_TOKEN"]).build()
    app.add_handler(CommandHandler("new", new, filters=owner))
    app.add_handler(MessageHandler(filters.TEXT & ~filters.COMMAND & owner, on_text))
    app.run_polling()


if __name__ == "__main__":
    main()
